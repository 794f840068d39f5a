"""Memory over the trace: live and reserved bytes after each event."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.lives import Lives
from oomctl.model.snapshot import Action, DeviceSnapshot


def active_curve(lives: Lives) -> NDArray[np.int64]:
    """int64[events]: active bytes after each event (pending frees included)."""
    return sum_curve(lives, np.ones(len(lives), bool))


def sum_curve(lives: Lives, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """int64[events]: active bytes of the chosen blocks after each event."""
    n = lives.events
    size = np.where(mask, lives.size, 0)
    old = lives.born < 0
    delta = np.zeros(n + 1, np.int64)
    np.add.at(delta, lives.born[~old], size[~old])
    np.subtract.at(delta, lives.died, size)
    return np.cumsum(delta[:n]) + int(size[old].sum())


def pending_curve(lives: Lives) -> NDArray[np.int64]:
    """int64[events]: bytes after each event that the program has freed and another stream may still use."""
    n = lives.events
    delta = np.zeros(n + 1, np.int64)
    waits = lives.asked < lives.died
    asked, died, size = lives.asked[waits], lives.died[waits], lives.size[waits]
    before = int(size[asked < 0].sum())
    np.add.at(delta, asked[asked >= 0], size[asked >= 0])
    np.subtract.at(delta, died, size)
    return np.asarray(np.cumsum(delta[:n]) + before)


def reserved_curve(device: DeviceSnapshot) -> NDArray[np.int64]:
    """int64[events]: reserved bytes after each event, anchored at the segments, which are the state at the end."""
    trace = device.trace
    if trace is None:
        return np.zeros(0, np.int64)
    rows = np.flatnonzero((trace.action >= Action.SEGMENT_ALLOC) & (trace.action <= Action.SEGMENT_UNMAP))
    grows = np.isin(trace.action[rows], (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP))
    curve = np.zeros(len(trace), np.int64)
    curve[rows] = np.where(grows, trace.size[rows], -trace.size[rows])
    np.cumsum(curve, out=curve)
    return curve + (int(device.segments.size.sum()) - int(curve[-1]))
