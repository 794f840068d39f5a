"""What the program was doing when it allocated: loading, forward, backward, optimizer, or unknown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.frames import frame_kind
from oomctl.model.stacks import BACKWARD_OF, Frame, StackTable

PHASES: Final = ("unknown", "load", "forward", "backward", "optimizer")
"""Names by code."""

UNKNOWN, LOAD, FORWARD, BACKWARD, OPTIMIZER = range(5)

_LOAD: Final = re.compile(
    r"^(?:__init__|_apply|apply|to|cuda|half|bfloat16|float|to_empty|convert|reset_parameters|_?init_weights|_?init_.*"
    r"|materialize.*|.*from_pretrained.*|.*load_state_dict.*|_load.*|load_.*|allocate_.*|.*_preallocate.*|setup|build_.*"
    r"|create_model|get_model|make_model|broadcast_.*|_sync_module_states.*)$"
)
_BACKWARD: Final = frozenset(
    {BACKWARD_OF.name, "backward", "_engine_run_backward", "run_backward", "unscale_", "clip_grad_norm_"}
)


def _sign(frame: Frame) -> int:
    """What one frame says: `BACKWARD` and `OPTIMIZER` decide about a stack, `FORWARD` and `LOAD` are hints."""
    name, filename = frame.name, frame.filename
    if name in _BACKWARD and (frame_kind(frame) != "user" or name != "backward"):
        return BACKWARD
    if "/torch/optim/" in filename or (name == "step" and "optim" in filename):
        return OPTIMIZER
    if name in ("_call_impl", "_wrapped_call_impl", "forward") or filename.endswith("torch/nn/functional.py"):
        return FORWARD
    if _LOAD.match(name):
        return LOAD
    return BACKWARD if "autograd::Engine::" in name or "PythonEngine::" in name else UNKNOWN


def phase_of(frames: Sequence[Frame]) -> int:
    """Phase of one stack, innermost frame first, from torch's own entry points."""
    signs = [_sign(frame) for frame in frames]
    for sign in signs:
        if sign in (BACKWARD, OPTIMIZER):
            return sign
    return FORWARD if FORWARD in signs else LOAD if LOAD in signs else UNKNOWN


@lru_cache(maxsize=4)
def phases(stacks: StackTable) -> NDArray[np.int8]:
    """int8[stacks + 1]: phase of each stack; the last entry, index -1, is that of `NO_STACK`."""
    signs = np.array([_sign(frame) for frame in stacks.frames], np.int8)
    # Each frame is judged once, however many stacks it is in.
    code = np.full(len(stacks) + 1, UNKNOWN, np.int8)
    for hint in (LOAD, FORWARD):
        code[:-1][first_marked(stacks, signs == hint)[0]] = hint
    decided, place = first_marked(stacks, (signs == BACKWARD) | (signs == OPTIMIZER))
    code[:-1][decided] = signs[stacks.frame_ids[place]]
    code.flags.writeable = False  # shared by all who ask
    return code


def first_marked(
    stacks: StackTable, marked: NDArray[np.bool_], deepest: int | None = None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which stacks have a marked frame, and where in `frame_ids` the innermost one of each is.

    Args:
        stacks: All stacks.
        marked: bool[frames].
        deepest: Look at this many innermost frames only; None for all.
    """
    places = np.flatnonzero(marked[stacks.frame_ids])
    begin, end = stacks.offsets[:-1], stacks.offsets[1:]
    if deepest is not None:
        end = np.minimum(end, begin + deepest)
    if not len(places):
        return places, places
    at = np.searchsorted(places, begin)
    first = places[np.minimum(at, len(places) - 1)]
    found = np.flatnonzero((at < len(places)) & (first < end))
    return found, first[found]
