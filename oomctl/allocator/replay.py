"""Requests through a heap: one pass, columns in, numbers out."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from oomctl.allocator.address import Chunks
from oomctl.allocator.blocks import Block
from oomctl.allocator.heap import Driver, Heap
from oomctl.allocator.limits import NO_LIMITS, Limits
from oomctl.allocator.policy import SMALL_REQUEST, Policy
from oomctl.allocator.requests import Op, Requests
from oomctl.allocator.seed import seed
from oomctl.allocator.start import Start
from oomctl.progress import Progress, silent

_CHUNK: Final = 1 << 16
"""Requests turned into Python numbers at a time: keeps memory bounded for traces of any length."""
_SIDES: Final = (False, True)
_ALLOC: Final = int(Op.ALLOC)
_FREE: Final = int(Op.FREE)

Schedule = Sequence[tuple[int, Limits]]
"""(first trace index, limits from there on), ascending; for a recorded limit that moved."""


@dataclass(slots=True)
class Mismatch:
    """The first allocation that a replay put elsewhere.

    Attributes:
        row: Row of the requests.
        size: Bytes of the rounded request.
        recorded: Recorded address.
        placed: Its block in the replay, or None if it failed.
    """

    row: int
    size: int
    recorded: int
    placed: Block | None


@dataclass(slots=True)
class Outcome:
    """What one pass gave.

    Attributes:
        peak_reserved: Bytes.
        peak_allocated: Bytes in blocks that the program had not yet freed.
        failed_at: Trace index of the first request that failed although it was served in the recording, or the
            fatal one; None if none did.
        served: Whether the fatal request was served; None if there was none or it was not reached.
        rescued: Failures recorded before the fatal one that did not happen here.
        retries: Flush-and-retry count.
        allocs: Driver calls that gave memory.
        frees: Driver calls that took memory back.
        curve_event: Trace indices at which reserved changed.
        curve_reserved: Bytes reserved from there on.
        placed: Allocations made.
        exact: Of these, at the recorded address (only counted when comparing).
        mismatch: The first that was not.
        heap: Final state.
        live: Blocks in use at the end, by life number.
    """

    heap: Heap
    live: dict[int, Block]
    peak_reserved: int = 0
    peak_allocated: int = 0
    failed_at: int | None = None
    served: bool | None = None
    rescued: int = 0
    retries: int = 0
    allocs: int = 0
    frees: int = 0
    curve_event: list[int] = field(default_factory=list)
    curve_reserved: list[int] = field(default_factory=list)
    placed: int = 0
    exact: int = 0
    mismatch: Mismatch | None = None


def replay(
    requests: Requests,
    policy: Policy,
    *,
    limits: Limits = NO_LIMITS,
    driver: Driver | None = None,
    start: Start | None = None,
    seeding: str = "pinned",
    until: int | None = None,
    compare: bool = False,
    stop_at_mismatch: bool = False,
    schedule: Schedule = (),
    progress: Progress = silent,
) -> Outcome:
    """Puts the requests through a heap, up to the first that fails.

    Args:
        requests: What the program asked for.
        policy: Rules to replay under.
        limits: What stops growth.
        driver: Gives addresses; the chunk rule by default.
        start: Old blocks with sizes; None for an empty heap.
        seeding: How to place them, see `seed.SEEDINGS`.
        until: Trace index of the fatal oom, the last request to replay; None for the whole trace.
        compare: Count allocations at the recorded address, and go on after failures.
        stop_at_mismatch: Stop at the first that differs.
        schedule: Limits that hold from a trace index on, in place of `limits`.
        progress: Told the share done.
    """
    from oomctl.allocator.compiled import kernel_for, replay_compiled

    plan = Plan(
        requests,
        policy,
        limits,
        Chunks() if driver is None else driver,
        start,
        seeding,
        until,
        compare,
        stop_at_mismatch,
        schedule,
        progress,
    )
    native = kernel_for(plan)
    if native is not None:
        return replay_compiled(native, plan)
    # Blocks by the hundred thousand, and no garbage among them: the collector would only look through them again.
    collects = gc.isenabled()
    gc.disable()
    try:
        return replay_plainly(plan)
    finally:
        if collects:
            gc.enable()


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What to replay, as `replay` is told."""

    requests: Requests
    policy: Policy
    limits: Limits
    driver: Driver
    start: Start | None
    seeding: str
    until: int | None
    compare: bool
    stop_at_mismatch: bool
    schedule: Schedule
    progress: Progress

    @property
    def stop(self) -> int:
        """Number of the first row that is not replayed."""
        if self.until is None:
            return len(self.requests)
        return self.requests.row_of(self.until, "right")

    def fatal_row(self) -> int:
        """Row of the fatal request; -1 for none."""
        if self.until is None:
            return -1
        low = self.requests.row_of(self.until)
        rows = np.flatnonzero(self.requests.op[low : self.stop] == Op.OOM)
        return low + int(rows[0]) if len(rows) else -1

    def changes(self) -> dict[int, Limits]:
        """Limits that hold from a row on."""
        return {min(self.requests.row_of(first), self.stop): limits for first, limits in self.schedule}

    def edges(self) -> list[int]:
        """Rows at which the work is cut into pieces."""
        return sorted({0, self.stop, *range(0, self.stop, _CHUNK), *self.changes()})

    def columns(self, low: int, high: int) -> tuple[NDArray[Any], ...]:
        """Rows [low, high) as columns: op, life, block size, number of the arena, recorded address."""
        requests, policy = self.requests, self.policy
        op = requests.op[low:high]
        size = requests.size[low:high]
        # The size of a recorded failure is a block's size already; rounding leaves it as it is, but for the padding.
        rounded = policy.round(np.where(op == Op.OOM, size - policy.padding, size))
        arena = requests.group[low:high].astype(np.int64) * 2 + (rounded <= SMALL_REQUEST)
        return op, requests.block[low:high].astype(np.int64), rounded, arena, requests.address[low:high]


def replay_plainly(plan: Plan) -> Outcome:
    """Carries a plan out in Python; the reference for the compiled heap."""
    requests, policy = plan.requests, plan.policy
    compare, stop_at_mismatch, start = plan.compare, plan.stop_at_mismatch, plan.start
    heap = Heap(policy, plan.driver, plan.limits.fraction, plan.limits.capacity)
    live = seed(heap, start, plan.seeding) if start is not None and start.segments else {}
    allocated = sum(block.size for block in live.values())
    outcome = Outcome(heap, live, peak_reserved=heap.reserved, peak_allocated=allocated)
    curve_event, curve_reserved = outcome.curve_event, outcome.curve_reserved
    curve_event.append(0)
    curve_reserved.append(heap.reserved)
    arenas = [heap.arena(pool_id, is_small, stream) for pool_id, stream in requests.groups for is_small in _SIDES]
    take, obtain, carve, release = heap.take, heap.obtain, heap.carve, heap.release
    peak, placed, exact = allocated, 0, 0
    stop, changes, fatal_row = plan.stop, plan.changes(), plan.fatal_row()

    for low, high in pairwise(plan.edges()):
        if low in changes:
            heap.fraction, heap.capacity = changes[low].fraction, changes[low].capacity
        plan.progress("replaying", low / stop)
        row = low - 1
        for op, key, size, arena, address in _rows(plan, low, high):
            row += 1
            if op == _ALLOC:
                block = take(arenas[arena], size)
                if block is None:
                    block = obtain(arenas[arena], size)
                    curve_event.append(row)
                    curve_reserved.append(heap.reserved)
                if block is None:
                    if not compare:
                        outcome.failed_at = row
                        break
                    outcome.mismatch = outcome.mismatch or Mismatch(row, size, address, None)
                else:
                    if block.size != size:
                        carve(block, size)
                    live[key] = block
                    allocated += block.size
                    if allocated > peak:  # noqa: PLR1730 - a call here would cost a tenth of the speed
                        peak = allocated
                    placed += 1
                    if compare:
                        if block.address == address:
                            exact += 1
                        elif outcome.mismatch is None:
                            outcome.mismatch = Mismatch(row, size, address, block)
                if stop_at_mismatch and outcome.mismatch is not None:
                    break
            elif op == _FREE:
                block = live.pop(key, None)
                if block is not None:
                    allocated -= block.size
                    release(block)
            elif op == Op.FREE_REQUESTED:
                block = live.pop(key, None)
                if block is not None:
                    allocated -= block.size
                    heap.pending[key] = block
            elif op == Op.FREE_COMPLETED:
                block = heap.pending.pop(key, None)
                if block is not None:
                    release(block)
            elif op == Op.OOM:
                block = heap.malloc(arenas[arena], size)
                curve_event.append(row)
                curve_reserved.append(heap.reserved)
                fatal = row == fatal_row
                if block is not None:
                    peak = max(peak, allocated + block.size)
                    release(block)
                    outcome.rescued += not fatal
                if fatal:
                    outcome.served = block is not None
                    outcome.failed_at = None if block is not None else row
            else:
                if op == Op.EMPTY_CACHE:
                    heap.flush()
                else:
                    heap.flush_private(requests.groups[arena >> 1][0])
                curve_event.append(row)
                curve_reserved.append(heap.reserved)
        else:
            continue
        break

    outcome.curve_event = [0, *requests.event[curve_event[1:]].tolist()]
    if outcome.failed_at is not None:
        outcome.failed_at = int(requests.event[outcome.failed_at])
    outcome.peak_reserved, outcome.peak_allocated = heap.peak_reserved, peak
    outcome.retries, outcome.allocs, outcome.frees = heap.retries, heap.allocs, heap.frees
    outcome.placed, outcome.exact = placed, exact
    return outcome


def _rows(plan: Plan, low: int, high: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Rows [low, high) as (op, life, block size, number of the arena, recorded address)."""
    return zip(*(column.tolist() for column in plan.columns(low, high)), strict=True)
