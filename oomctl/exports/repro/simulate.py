"""A pattern put through the simulated allocator: does it fail where it should, and what would torch have recorded?"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from oomctl.allocator.address import Chunks, Descending, Noted
from oomctl.allocator.blocks import Block
from oomctl.allocator.heap import Heap
from oomctl.allocator.limits import Limits
from oomctl.allocator.policy import SMALL_REQUEST
from oomctl.allocator.replay import replay
from oomctl.allocator.requests import Op, Requests
from oomctl.allocator.start import Start
from oomctl.exports.repro.pattern import Pattern
from oomctl.model.common import VersionRange
from oomctl.model.snapshot import (
    Action,
    AllocatorSettings,
    Blocks,
    BlockState,
    DeviceSnapshot,
    PoolId,
    Segments,
    Snapshot,
    Trace,
)
from oomctl.model.stacks import NO_STACK, Frame, StackTable

PLENTY = 1 << 40
"""Free bytes on the simulated card: what stops the pattern is its limit alone."""
Event = tuple[int, int, int, int, int]
"""(action, address, size, group, stack)."""


@dataclass
class Log:
    """What happened, as events.

    Attributes:
        events: In order of time.
        group: Of the request under way.
        stack: Of the request under way.
    """

    events: list[Event] = field(default_factory=list)
    group: int = 0
    stack: int = NO_STACK

    def add(self, action: Action, address: int, size: int) -> None:
        """Notes one event of the request under way."""
        self.events.append((int(action), address, size, self.group, self.stack))


def fails(pattern: Pattern) -> bool:
    """Whether the last request fails and no request before it that should be served, in any order of addresses."""
    op, key, size, group, _ = np.ascontiguousarray(pattern.table.T)
    last = len(op) - 1
    requests = Requests(
        op=op.astype(np.uint8),
        block=key.astype(np.int32),
        size=size,
        group=group.astype(np.int32),
        address=np.zeros(len(op), np.uint64),
        event=np.arange(len(op), dtype=np.int32),
        groups=pattern.groups,
        start=Start(),
        calls=(),
        events=len(op),
    )
    for driver in (Chunks, Descending):
        found = replay(requests, pattern.policy, limits=Limits(fraction=pattern.limit), driver=driver(), until=last)
        if found.failed_at != last:
            return False
    return True


def recorded(pattern: Pattern) -> Snapshot:
    """The snapshot that torch would write after the failure."""
    log = Log()
    heap = Heap(pattern.policy, Noted(log.add), pattern.limit)
    live: dict[int, tuple[Block, int, int]] = {}
    _run(pattern, heap, log, live)
    pools: list[PoolId] = list(dict.fromkeys([(0, 0), *(pool for pool, _ in pattern.groups)]))
    segments, blocks = _final(heap, {id(block): (size, stack) for block, size, stack in live.values()}, pools)
    device = DeviceSnapshot(0, segments, blocks, tuple(pools), _trace(log.events, pattern))
    settings = AllocatorSettings(
        pattern.conf,
        {
            "PYTORCH_CUDA_ALLOC_CONF": pattern.conf,
            "expandable_segments": pattern.policy.expandable,
        },
    )
    return Snapshot(
        (device,), _table(pattern), settings, (), VersionRange(pattern.torch, pattern.torch), "cuda", (), ()
    )


def _run(pattern: Pattern, heap: Heap, log: Log, live: dict[int, tuple[Block, int, int]]) -> None:
    """One pass with everything noted."""
    rounded: dict[int, int] = {}
    for op, key, size, group, stack in pattern.table.tolist():
        log.group, log.stack = group, stack
        if op in (Op.ALLOC, Op.OOM):
            wanted = rounded.get(size)
            if wanted is None:
                wanted = rounded[size] = pattern.policy.round_one(size)
            pool, stream = pattern.groups[group]
            block = heap.malloc(heap.arena(pool, wanted <= SMALL_REQUEST, stream), wanted)
            if block is None:
                log.add(Action.OOM, 0, wanted)
            else:
                log.add(Action.ALLOC, block.address, size)
                if op == Op.ALLOC:
                    live[key] = (block, size, stack)
                else:
                    _freed(log, block, size)
                    heap.release(block)
        elif op == Op.FREE:
            block, asked, _ = live.pop(key)
            _freed(log, block, asked)
            heap.release(block)
        else:
            heap.flush()


def _freed(log: Log, block: Block, size: int) -> None:
    log.add(Action.FREE_REQUESTED, block.address, size)
    log.add(Action.FREE_COMPLETED, block.address, size)


def _trace(events: list[Event], pattern: Pattern) -> Trace:
    action, address, size, group, stack = (
        np.array([event[i] for event in events], dtype) for i, dtype in enumerate(("u1", "u8", "i8", "i8", "i4"))
    )
    streams = np.array([stream for _, stream in pattern.groups], np.uint64)
    free = {int(i): PLENTY for i in np.flatnonzero(action == Action.OOM)}
    return Trace(
        action, address, size, streams[group], stack, np.arange(len(action), dtype=np.int64), None, None, None, (), free
    )


def _final(heap: Heap, live: dict[int, tuple[int, int]], pools: list[PoolId]) -> tuple[Segments, Blocks]:
    """Segments and blocks at the end; a mapped range is a segment of its own."""
    ranges: list[list[Block]] = []
    for first in [*heap.segments.values(), *(region.first for region in heap.regions)]:
        block: Block | None = first
        fresh = True
        while block is not None:
            if not block.mapped:
                fresh = True
            elif fresh:
                ranges.append([block])
                fresh = False
            else:
                ranges[-1].append(block)
            block = block.next
    ranges.sort(key=lambda inside: inside[0].address)
    blocks = [block for inside in ranges for block in inside]
    used = [live.get(id(block)) for block in blocks]
    arenas = [inside[0].arena for inside in ranges]
    segments = Segments(
        np.array([inside[0].address for inside in ranges], np.uint64),
        np.array([sum(block.size for block in inside) for inside in ranges], np.int64),
        np.array([arena.stream for arena in arenas], np.uint64),
        np.array([pools.index(arena.pool.id) for arena in arenas], np.int32),
        np.array([not arena.pool.is_small for arena in arenas], bool),
        np.array([inside[0].region is not None for inside in ranges], bool),
        np.full(len(ranges), NO_STACK, np.int32),
        np.cumsum([0, *(len(inside) for inside in ranges)]).astype(np.int64),
    )
    states = [BlockState.INACTIVE if one is None else BlockState.ACTIVE_ALLOCATED for one in used]
    return segments, Blocks(
        np.array([block.address for block in blocks], np.uint64),
        np.array([block.size for block in blocks], np.int64),
        np.array([0 if one is None else one[0] for one in used], np.int64),
        np.array(states, np.uint8),
        np.array([NO_STACK if one is None else one[1] for one in used], np.int32),
    )


def _table(pattern: Pattern) -> StackTable:
    numbers: dict[Frame, int] = {}
    ids = [[numbers.setdefault(frame, len(numbers)) for frame in stack] for stack in pattern.stacks]
    offsets = np.cumsum([0, *(len(stack) for stack in ids)]).astype(np.int64)
    return StackTable(tuple(numbers), offsets, np.array([i for stack in ids for i in stack], np.int32))
