"""What the program was doing when it allocated: loading, forward, backward, optimizer, or unknown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.frames import frame_kind
from oomctl.model.stacks import Frame, StackTable

PHASES: Final = ("unknown", "load", "forward", "backward", "optimizer")
"""Names by code."""

UNKNOWN, LOAD, FORWARD, BACKWARD, OPTIMIZER = range(5)

_LOAD: Final = re.compile(
    r"^(?:__init__|_apply|apply|to|cuda|half|bfloat16|float|to_empty|convert|reset_parameters|_?init_weights|_?init_.*"
    r"|materialize.*|.*from_pretrained.*|.*load_state_dict.*|_load.*|load_.*|allocate_.*|.*_preallocate.*|setup|build_.*"
    r"|create_model|get_model|make_model|broadcast_.*|_sync_module_states.*)$"
)
_BACKWARD: Final = frozenset({"backward", "_engine_run_backward", "run_backward", "unscale_", "clip_grad_norm_"})


def phase_of(frames: Sequence[Frame]) -> int:
    """Phase of one stack, innermost frame first, from torch's own entry points."""
    forward = load = False
    for frame in frames:
        name, filename = frame.name, frame.filename
        if name in _BACKWARD and (frame_kind(frame) != "user" or name != "backward"):
            return BACKWARD
        if "/torch/optim/" in filename or (name == "step" and "optim" in filename):
            return OPTIMIZER
        if name in ("_call_impl", "_wrapped_call_impl", "forward") or filename.endswith("torch/nn/functional.py"):
            forward = True
        elif _LOAD.match(name):
            load = True
        elif "autograd::Engine::" in name or "PythonEngine::" in name:
            return BACKWARD
    if forward:
        return FORWARD
    return LOAD if load else UNKNOWN


def phases(stacks: StackTable) -> NDArray[np.int8]:
    """int8[stacks + 1]: phase of each stack; the last entry, index -1, is that of `NO_STACK`."""
    codes = [phase_of(stack) for stack in stacks]
    return np.array([*codes, UNKNOWN], np.int8)
