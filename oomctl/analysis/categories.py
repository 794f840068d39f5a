"""What kind of tensor holds the live bytes, by the phase that made it and by how long it lives."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.incident import Incident
from oomctl.analysis.phases import BACKWARD, FORWARD, LOAD, OPTIMIZER, first_marked, phases
from oomctl.model.report import CategoryRow
from oomctl.model.stacks import Frame, StackTable

CATEGORIES: Final = (
    "unknown",
    "parameters",
    "gradients",
    "optimizer_state",
    "activations",
    "inputs",
    "temporaries",
    "workspace",
    "graph_pools",
)
"""Slugs by code."""

(UNKNOWN, PARAMETERS, GRADIENTS, OPTIMIZER_STATE, ACTIVATIONS, INPUTS, TEMPORARIES, WORKSPACE, GRAPH_POOLS) = range(9)

_INPUT: Final = re.compile(
    r"^(?:to_device|send_to_device|move_to_device|_?prepare_inputs?|_?move_data.*|batch_to_device|collate.*|pin_memory"
    r"|transfer_batch_to_device|next_batch|get_batch|load_batch|prefetch.*|preload|make_batch)$"
)
_WORKSPACE: Final = re.compile(r"cublas|cudnn|workspace|BlasHandle|cusolver|cufft", re.IGNORECASE)
_STATE: Final = re.compile(r"^(?:_init_group|_init_state|init_state|initialize_state|state_for)$")


def categories_of(incident: Incident) -> NDArray[np.int8]:
    """int8[live]: category of each live block of the heap at the moment.

    The phase comes from torch's own frames; what was made before the first step and stays is a parameter when a module
    or a loader made it; what the backward pass leaves beyond its step, or leaves in a parameter's size, is a gradient.
    Without stacks everything outside private pools is unknown.
    """
    heap, lives = incident.heap, incident.lives
    live = heap.live
    out = np.full(len(live), UNKNOWN, np.int8)
    stack = lives.stack[live]
    phase = phases(incident.snapshot.stacks)[stack]
    named = _by_name(incident.snapshot.stacks)[stack]
    began = incident.step_start if len(incident.grid) >= 3 else -1
    this_step = lives.born[live] >= began if began >= 0 else np.ones(len(live), bool)

    out[phase == LOAD] = PARAMETERS
    out[phase == FORWARD] = ACTIVATIONS
    sizes = lives.requested[live][out == PARAMETERS]
    like_parameter = np.isin(lives.requested[live], sizes)
    out[phase == BACKWARD] = TEMPORARIES
    out[(phase == BACKWARD) & (like_parameter | ~this_step)] = GRADIENTS
    out[(phase == OPTIMIZER) & this_step] = TEMPORARIES
    out[(phase == OPTIMIZER) & ~this_step] = OPTIMIZER_STATE
    out[(phase == OPTIMIZER) & (named == OPTIMIZER_STATE)] = OPTIMIZER_STATE
    # What was there before the first step in the size of some optimizer state is the parameter that it belongs to.
    states = lives.requested[live][out == OPTIMIZER_STATE]
    before = lives.born[live] < (int(incident.grid.starts[0]) if len(incident.grid) else incident.moment.event)
    out[(out == UNKNOWN) & before & np.isin(lives.requested[live], states)] = PARAMETERS
    out[named == INPUTS] = INPUTS
    out[named == WORKSPACE] = WORKSPACE
    out[heap.pool[heap.live_segment] > 0] = GRAPH_POOLS
    return out


def _by_name(stacks: StackTable) -> NDArray[np.int8]:
    """int8[stacks + 1]: category that a function's name alone gives away, `UNKNOWN` for most."""
    codes = np.array([_name_says(frame) for frame in stacks.frames], np.int8)
    out = np.full(len(stacks) + 1, UNKNOWN, np.int8)
    found, place = first_marked(stacks, codes != UNKNOWN, deepest=12)
    out[:-1][found] = codes[stacks.frame_ids[place]]
    return out


def _name_says(frame: Frame) -> int:
    if "::" in frame.name and _WORKSPACE.search(frame.name):
        return WORKSPACE
    if _STATE.match(frame.name):
        return OPTIMIZER_STATE
    return INPUTS if _INPUT.match(frame.name) else UNKNOWN


def category_rows(incident: Incident) -> tuple[CategoryRow, ...]:
    """Live bytes at the moment by category, largest first; they sum to the active bytes."""
    code = categories_of(incident)
    size = np.bincount(code, incident.heap.live_size, len(CATEGORIES)).astype(np.int64)
    count = np.bincount(code, minlength=len(CATEGORIES))
    order = sorted(range(len(CATEGORIES)), key=lambda i: -int(size[i]))
    return tuple(CategoryRow(CATEGORIES[i], int(size[i]), int(count[i])) for i in order if size[i])
