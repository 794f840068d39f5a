"""Fewest requests that still fail the same way: whole lives of blocks are left out as long as the judge agrees.

Delta debugging (Zeller and Hildebrandt, 2002) over units: a block with its allocation and its free, a request that
failed on the way, an emptying of the caches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.allocator.requests import Op
from oomctl.exports.repro.pattern import Pattern
from oomctl.progress import Progress, silent

WORK: Final = 15_000_000
"""Steps simulated at most, all attempts together: bounds the time to about a minute."""
OVERHEAD: Final = 2000
"""What an attempt costs however short it is, in steps."""
JUDGED: Final = 20
"""What a judge costs more than a replay, a step."""


def reduced(
    pattern: Pattern,
    fails: Callable[[Pattern], bool],
    agrees: Callable[[Pattern], bool] | None = None,
    *,
    work: int = WORK,
    progress: Progress = silent,
) -> Pattern:
    """A pattern with as few requests as were found to be enough.

    Args:
        pattern: It passes both tests.
        fails: Whether a pattern fails where it should; quick.
        agrees: Whether one that fails is judged as the whole is; slow.
        work: Steps to simulate at most.
        progress: Told the share of the work done.

    Returns:
        A pattern that passes both tests; where the work sufficed, no single unit of it can go.
    """
    units = _units(pattern)
    size = max(len(units) // 2, 1)
    spent = 0
    while len(units):
        removed = False
        start = 0
        while start < len(units):
            if spent >= work:
                return _only(pattern, units)
            candidate = np.delete(units, slice(start, start + size))
            attempt = _only(pattern, candidate)
            spent += len(attempt.table) + OVERHEAD
            progress("leaving requests out", spent / work)
            kept = fails(attempt)
            if kept and agrees is not None:
                spent += JUDGED * len(attempt.table) + 10 * OVERHEAD
                kept = agrees(attempt)
            if kept:
                units = candidate
                removed = True
            else:
                start += size
        if size > 1:
            size = max(size // 2, 1)
        elif not removed:
            break
    return _only(pattern, units)


def _units(pattern: Pattern) -> NDArray[np.int64]:
    """Step numbers that units begin with: allocations, and what stands alone; the failing request is none."""
    return np.flatnonzero(pattern.table[:-1, 0] != Op.FREE)


def _only(pattern: Pattern, units: NDArray[np.int64]) -> Pattern:
    """The pattern with these units and the failing request; a block's free goes with its allocation."""
    table = pattern.table
    kept = np.zeros(len(table), bool)
    kept[units] = kept[-1] = True
    held = table[units[table[units, 0] == Op.ALLOC], 1]
    frees = np.flatnonzero(table[:, 0] == Op.FREE)
    kept[frees] = np.isin(table[frees, 1], held)
    return replace(pattern, table=table[kept])
