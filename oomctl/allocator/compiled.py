"""Replays through the compiled heap, where there is one: the same outcome, ten times sooner."""

from __future__ import annotations

from itertools import pairwise
from types import ModuleType
from typing import Any, Final

import numpy as np

from oomctl import _native
from oomctl.allocator.blocks import Arena, Block, Region
from oomctl.allocator.heap import Heap
from oomctl.allocator.replay import Mismatch, Outcome, Plan
from oomctl.allocator.seed import seed
from oomctl.model.snapshot import DEFAULT_POOL, PoolId

MAX_ADDRESS: Final = 1 << 62
"""Addresses from here on, as other backends have them, and sums of sizes take Python's own numbers."""
_MOST_MAPPED: Final = 64 << 20
"""Bytes by which memory for one request may exceed twice the request."""


def kernel_for(plan: Plan) -> ModuleType | None:
    """The compiled heap, if there is one and the plan's numbers fit into 64 bits on the way."""
    native = _native.kernel("heap")
    if native is None:
        return None
    requests, start = plan.requests, plan.start
    highest = max(
        int(requests.address.max(initial=0)),
        max((call.address + call.size for call in requests.calls), default=0),
        max((s.address + s.size for s in start.segments), default=0) if start is not None else 0,
    )
    total = 2.0 * float(requests.size.sum(dtype=np.float64)) + float(_MOST_MAPPED * len(requests))
    total += float(plan.policy.large_segment) * len(requests)
    total += 0 if start is None else 2.0 * start.reserved
    return native if highest < MAX_ADDRESS and total < MAX_ADDRESS else None


def replay_compiled(native: ModuleType, plan: Plan) -> Outcome:
    """Carries a plan out; see `oomctl.allocator.replay.replay`, which this repeats."""
    requests, policy = plan.requests, plan.policy
    frame = Heap(policy, plan.driver, plan.limits.fraction, plan.limits.capacity)
    live = seed(frame, plan.start, plan.seeding) if plan.start is not None and plan.start.segments else {}
    arenas = [
        frame.arena(pool_id, is_small, stream) for pool_id, stream in requests.groups for is_small in (False, True)
    ]
    lives = int(requests.block.max(initial=-1)) + 1
    machine = _machine(native, frame, arenas, live, max([lives, *(key + 1 for key in (*live, *frame.pending))]))
    started = machine.reserved
    changes = plan.changes()
    fatal = plan.fatal_row()
    for low, high in pairwise(plan.edges()):
        if low in changes:
            frame.fraction, frame.capacity = changes[low].fraction, changes[low].capacity
        machine.limit(frame.fraction, frame.capacity)
        plan.progress("replaying", low / plan.stop)
        op, life, size, arena, address = plan.columns(low, high)
        signed = address.view(np.int64)  # below 2^62, see `kernel_for`
        if not machine.run(op, life, size, arena, signed, low, fatal, plan.compare, plan.stop_at_mismatch):
            break
    rows, reserved = machine.curve()
    return _Outcome(
        machine,
        frame,
        plan.stop_at_mismatch,
        peak_reserved=machine.peak_reserved,
        peak_allocated=machine.peak_allocated,
        failed_at=None if machine.failed_row < 0 else int(requests.event[machine.failed_row]),
        served=None if machine.served < 0 else bool(machine.served),
        rescued=machine.rescued,
        retries=machine.retries,
        allocs=machine.allocs,
        frees=machine.frees,
        curve_event=[0, *requests.event[rows].tolist()],
        curve_reserved=[started, *reserved],
        placed=machine.placed,
        exact=machine.exact,
    )


class _Outcome(Outcome):
    """An outcome whose heap is only built when it is looked at."""

    __slots__ = ("_frame", "_machine", "_state", "_stopped")

    def __init__(self, machine: Any, frame: Heap, stopped: bool, **numbers: Any) -> None:
        self._machine = machine
        self._frame = frame
        self._stopped = stopped
        self._state: tuple[Heap, dict[int, Block], list[Block]] | None = None
        for name, value in numbers.items():
            setattr(self, name, value)

    def _built(self) -> tuple[Heap, dict[int, Block], list[Block]]:
        if self._state is None:
            self._state = _read_out(self._machine, self._frame)
        return self._state

    @property
    def heap(self) -> Heap:  # type: ignore[override]
        """Final state."""
        return self._built()[0]

    @property
    def live(self) -> dict[int, Block]:  # type: ignore[override]
        """Blocks in use at the end, by life number."""
        return self._built()[1]

    @property
    def mismatch(self) -> Mismatch | None:  # type: ignore[override]
        """The first allocation that was put elsewhere."""
        machine = self._machine
        if machine.mismatch_row < 0:
            return None
        placed = None
        if machine.mismatch_block >= 0:
            blocks = self._built()[2]
            placed = blocks[machine.mismatch_block]
            if not self._stopped:  # it may have become something else since
                placed = Block(machine.mismatch_address, placed.size, placed.arena)
        return Mismatch(machine.mismatch_row, machine.mismatch_size, machine.mismatch_recorded, placed)


def _machine(native: ModuleType, heap: Heap, first: list[Arena], live: dict[int, Block], lives: int) -> Any:
    """A compiled heap with the content of one of Python's."""
    arenas = [*first, *(arena for arena in heap.arenas() if arena not in first)]
    number_of = {id(arena): number for number, arena in enumerate(arenas)}
    ids: dict[PoolId, int] = {DEFAULT_POOL: 0}
    for arena in arenas:
        ids.setdefault(arena.pool.id, len(ids))
    pools = [heap.pool(pool_id, is_small) for pool_id in ids for is_small in (False, True)]
    machine = native.Machine(
        heap.policy,
        heap.driver,
        [(pool.is_small, pool.reclaims) for pool in pools],
        [2 * ids[arena.pool.id] + arena.pool.is_small for arena in arenas],
        [[number_of[id(arena)] for arena in pool.arenas] for pool in pools],
        lives,
    )
    blocks: list[Block] = []
    regions = list(heap.regions)
    for block in (*heap.segments.values(), *(region.first for region in regions)):
        here: Block | None = block
        while here is not None:
            blocks.append(here)
            here = here.next
    place = {id(block): number for number, block in enumerate(blocks)}
    region_of = {id(region): number for number, region in enumerate(regions)}
    rows = [
        (
            block.address,
            block.size,
            -1 if block.prev is None else place[id(block.prev)],
            -1 if block.next is None else place[id(block.next)],
            number_of[id(block.arena)],
            -1 if block.region is None else region_of[id(block.region)],
            block.idle,
            block.mapped,
            block.born,
        )
        for block in blocks
    ]
    machine.fill(
        rows,
        [place[id(block)] for block in heap.segments.values()],
        [(region.base, region.granule, place[id(region.first)]) for region in regions],
        [(life, place[id(block)]) for life, block in heap.pending.items()],
        [(life, place[id(block)]) for life, block in live.items()],
        heap.reserved,
        [pool.searches for pool in pools],
    )
    machine.limit(heap.fraction, heap.capacity)
    machine.arenas, machine.pools = arenas, pools
    return machine


def _read_out(machine: Any, frame: Heap) -> tuple[Heap, dict[int, Block], list[Block]]:
    """The compiled heap's content as one of Python's; also its live blocks, and all blocks by number."""
    heap = Heap(frame.policy, frame.driver, frame.fraction, frame.capacity)
    heap.reserved, heap.peak_reserved = machine.reserved, machine.peak_reserved
    heap.retries, heap.allocs, heap.frees = machine.retries, machine.allocs, machine.frees
    firsts, region_rows, pending, live, searches, freeable = machine.state()
    pools = [heap.pool(pool.id, pool.is_small) for pool in machine.pools]
    arenas = [heap.arena(arena.pool.id, arena.pool.is_small, arena.stream) for arena in machine.arenas]
    for pool, count in zip(pools, searches, strict=True):
        pool.searches = count
    regions = [Region(base, granule) for base, granule, _ in region_rows]
    rows = machine.rows()
    blocks = [
        Block(address, size, arenas[arena], None if region < 0 else regions[region])
        for address, size, _, _, arena, region, *_ in rows
    ]
    for block, (_, size, before, after, _, _, idle, mapped, born) in zip(blocks, rows, strict=True):
        if not size:
            continue  # part of another one by now
        block.prev = None if before < 0 else blocks[before]
        block.next = None if after < 0 else blocks[after]
        if not mapped:
            block.arena.add_unmapped(block)
        elif idle:
            block.arena.add(block)
        block.born = born
    for region, (_, _, first) in zip(regions, region_rows, strict=True):
        if first >= 0:
            region.first = blocks[first]
            heap.regions.append(region)
    heap.segments = {blocks[first].address: blocks[first] for first in firsts}
    heap.pending = {life: blocks[number] for life, number in pending}
    heap.freeable = {pools[number].id: None for number in freeable}
    return heap, {life: blocks[number] for life, number in live}, blocks
