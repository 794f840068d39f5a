"""Which stacks hold more after every step: the evidence for a leak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.lives import BEFORE, Lives
from oomctl.model.coding import coded

_HISTORY: Final = 5
"""Growths per step that a group must already hold at the start of a window of few steps."""

_SMALLEST_SHARE: Final = 0.002
"""Groups whose survivors are less than this part of the live bytes are not looked at one by one."""


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """Live bytes by group at successive step boundaries.

    Attributes:
        boundaries: int64[k], trace indices; column j is the state just before that event, the last one the moment.
        groups: int64[g], the signature of each group (a stack index, or a size where there are no stacks).
        held: int64[g, k], live bytes of the group at each boundary.
        survivors: int64[g], live bytes at the moment that were allocated within the trace.
        growing: bool[g], held more and more, until the moment.
        slope: float64[g], bytes per step of a growing group (0 for others).
        grown: int64[g], bytes that the growing group holds beyond what one step needs.
        steps: Number of whole steps behind this.
        every: int64[g], steps between two growths of a growing group (1: every step).
    """

    boundaries: NDArray[np.int64]
    groups: NDArray[np.int64]
    held: NDArray[np.int64]
    survivors: NDArray[np.int64]
    growing: NDArray[np.bool_]
    slope: NDArray[np.float64]
    grown: NDArray[np.int64]
    steps: int
    every: NDArray[np.int64]

    @property
    def total(self) -> int:
        """Bytes of all growing groups."""
        return int(self.grown.sum())

    @property
    def per_step(self) -> int:
        """Bytes per step of all growing groups."""
        return round(float(self.slope.sum()))


def measure_growth(
    lives: Lives,
    signature: NDArray[np.int64],
    starts: NDArray[np.int64],
    event: int,
    exclude: NDArray[np.bool_],
    truncated: bool = False,
) -> Growth:
    """Live bytes of each group of blocks at the same phase of successive steps.

    Survivors of one step are not leaks: a group grows only if it holds more at boundary after boundary, in the later
    part of the trace as well as before, and up to the moment. State that is freed and made anew each step nets to zero
    by itself; growth that stops is a cache or a warm-up.

    Args:
        lives: Blocks.
        signature: int64[len(lives)], group of each block (`lives.stack`, or the size without stacks).
        starts: int64[k], first event of each step.
        event: The moment.
        exclude: bool[len(lives)], blocks that do not take part (those in private pools).
        truncated: The beginning of the trace is missing: what a group held before it counts as history.
    """
    bounds = np.append(starts, event + 1)
    now = lives.alive(event) & ~exclude
    total = int(lives.size[now].sum())
    candidates, inverse = coded(signature)
    by_group = np.bincount(inverse, np.where(now & (lives.born > BEFORE), lives.size, 0), len(candidates))
    chosen = np.flatnonzero(by_group > max(_SMALLEST_SHARE * total, 0))
    chosen = chosen[np.argsort(-by_group[chosen], kind="stable")][:400]
    place = np.full(len(candidates), -1)
    place[chosen] = np.arange(len(chosen))
    row = place[inverse]
    mine = (row >= 0) & ~exclude
    k, g = len(bounds), len(chosen)
    # A block is in the state just before boundary b when born < b <= died.
    first = np.searchsorted(bounds, lives.born[mine], side="right")
    last = np.searchsorted(bounds, lives.died[mine], side="right")
    delta = np.zeros((g, k + 1), np.int64)
    np.add.at(delta, (row[mine], first), lives.size[mine])
    np.subtract.at(delta, (row[mine], np.maximum(last, first)), lives.size[mine])
    held = np.cumsum(delta, axis=1)[:, :k]
    growing, slope, grown, every = _judge(held, truncated)
    return Growth(
        bounds, candidates[chosen], held, by_group[chosen].astype(np.int64), growing, slope, grown, max(k - 2, 0), every
    )


def _judge(
    held: NDArray[np.int64], truncated: bool
) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """(growing, bytes per step, bytes grown, steps between growths) of each row of live bytes at boundaries."""
    g, k = held.shape
    growing = np.zeros(g, bool)
    slope = np.zeros(g)
    grown = np.zeros(g, np.int64)
    every = np.ones(g, np.int64)
    if k < 5:
        if truncated and k > 3:
            _judge_few(held, growing, slope, grown)
        return growing, slope, grown, every
    at_starts = held[:, :-1]  # the last column is the moment itself, in the middle of a step
    steps = at_starts.shape[1]
    for i in range(g):
        curve = at_starts[i].astype(np.float64)
        rise = np.diff(curve)
        up = np.flatnonzero(rise > 0)
        if len(up) < 3:
            continue
        net = curve[-1] - curve[0]
        if net <= 0:
            continue
        # What is given back now and then must not eat most of what is taken.
        if -rise[rise < 0].sum() > 0.5 * rise[up].sum():
            continue
        gap = float(np.median(np.diff(up)))
        late = up[-1] >= steps - 2 - 1.5 * (gap - 1)
        half = steps // 2
        second = curve[-1] - curve[half]
        first = curve[half] - curve[0]
        # The later half grows at least a third as fast as the earlier one, and not in one jump.
        lasting = second * 3 >= first and rise.max() <= 0.5 * net + 1
        spread = (up[-1] - up[0]) >= 0.5 * (steps - 1)
        if late and lasting and spread:
            growing[i] = True
            x = np.arange(steps, dtype=np.float64)
            slope[i] = float(np.polyfit(x, curve, 1)[0])
            grown[i] = int(held[i, -1] - held[i].min())
            every[i] = max(round((up[-1] - up[0]) / max(len(up) - 1, 1)), 1)
    return growing, slope, grown, every


def _judge_few(
    held: NDArray[np.int64], growing: NDArray[np.bool_], slope: NDArray[np.float64], grown: NDArray[np.int64]
) -> None:
    """A window of few steps: growth at each of them, on top of a history of many such growths."""
    at_starts = held[:, :-1].astype(np.float64)
    rise = np.diff(at_starts, axis=1)
    usual = np.median(rise, axis=1)
    found = (rise > 0).all(axis=1) & (held[:, 0] >= _HISTORY * usual)
    growing[:] = found
    slope[:] = np.where(found, usual, 0.0)
    grown[:] = np.where(found, held[:, -1] - held[:, 0], 0)
