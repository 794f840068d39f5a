"""The state before the first event of a trace, rolled back from the final segments.

A complete trace starts with nothing. A ring buffer that has overflowed starts in the middle: segments and blocks were
there already, and the true size of such a block can be larger than its request says.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from oomctl.allocator.address import DriverCall
from oomctl.allocator.policy import SMALL_REQUEST, SMALL_SEGMENT, UNLIMITED, Policy
from oomctl.model.snapshot import DEFAULT_POOL, Action, BlockState, DeviceSnapshot, PoolId


@dataclass(frozen=True, slots=True)
class OldBlock:
    """A block that was in use before the first event.

    Attributes:
        key: Life number, as in `Requests.block`.
        address: Start.
        request: Bytes asked for.
        size: Bytes that it really takes where that is known, else 0.
        pending: It waits for another stream.
    """

    key: int
    address: int
    request: int
    size: int = 0
    pending: bool = False


@dataclass(frozen=True, slots=True)
class OldSegment:
    """A segment or mapped range that existed before the first event.

    Attributes:
        address: Start.
        size: Bytes.
        stream: Raw stream handle.
        pool_id: Private pool or the default one.
        is_small: Belongs to the small pool.
        expandable: It is a range of an expandable region.
        blocks: Its blocks in use, ascending.
    """

    address: int
    size: int
    stream: int
    pool_id: PoolId
    is_small: bool
    expandable: bool
    blocks: tuple[OldBlock, ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that existed before the first event.

    Attributes:
        segments: Ascending by address.
        homeless: Blocks in use that lie in no known segment; a replay cannot place them.
    """

    segments: tuple[OldSegment, ...] = ()
    homeless: int = 0

    @property
    def reserved(self) -> int:
        """Bytes."""
        return sum(segment.size for segment in self.segments)


class _Ranges:
    """Disjoint address ranges with what is known of each."""

    def __init__(self, device: DeviceSnapshot) -> None:
        s = device.segments
        columns = (s.address, s.size, s.stream, s.pool, s.is_large, s.is_expandable)
        rows = zip(*(c.tolist() for c in columns), strict=True)
        self.starts: list[int] = []
        self.by_start: dict[int, OldSegment] = {}
        for address, size, stream, pool, is_large, expandable in rows:
            self.add(OldSegment(address, size, stream, device.pools[pool], not is_large, expandable))

    def add(self, segment: OldSegment) -> None:
        i = bisect_left(self.starts, segment.address)
        if i == len(self.starts) or self.starts[i] != segment.address:
            self.starts.insert(i, segment.address)
        self.by_start[segment.address] = segment

    def at(self, address: int) -> OldSegment | None:
        """The range that holds an address."""
        i = bisect_right(self.starts, address) - 1
        if i < 0:
            return None
        segment = self.by_start[self.starts[i]]
        return segment if address < segment.address + segment.size else None

    def cut(self, address: int, end: int) -> OldSegment | None:
        """Takes [address, end) out; returns a range that it cut, for what is known of it."""
        known = None
        position = address
        while position < end:
            segment = self.at(position)
            if segment is None:
                i = bisect_right(self.starts, position)
                if i == len(self.starts) or self.starts[i] >= end:
                    break
                position = self.starts[i]
                continue
            known = segment
            stop = segment.address + segment.size
            del self.starts[bisect_left(self.starts, segment.address)]
            del self.by_start[segment.address]
            if segment.address < position:
                self.add(replace(segment, size=position - segment.address))
            if end < stop:
                self.add(replace(segment, address=end, size=stop - end))
            position = stop
        return known


def start_state(
    device: DeviceSnapshot,
    calls: Sequence[DriverCall],
    old: Iterable[OldBlock],
    untouched_from: int,
    touched: NDArray[np.uint64],
) -> Start:
    """Rolls the segments back through all segment events and puts the old blocks into them.

    Args:
        device: For its final segments and its trace.
        calls: Recorded segment events.
        old: Blocks from before the trace that it mentions.
        untouched_from: First free life number, for old blocks that the trace never mentions.
        touched: uint64[events], addresses that it mentions.
    """
    trace = device.trace
    assert trace is not None
    ranges = _Ranges(device)
    for call in reversed(calls):
        if call.action in (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP):
            ranges.cut(call.address, call.address + call.size)
            continue
        expandable = call.action == Action.SEGMENT_UNMAP
        pool = DEFAULT_POOL
        if trace.pool is not None and trace.pool[call.event] >= 0:
            pool = device.pools[int(trace.pool[call.event])]
        is_small = call.size == SMALL_SEGMENT if not expandable else call.size % (10 * SMALL_SEGMENT) != 0
        stream = int(trace.stream[call.event])
        ranges.add(OldSegment(call.address, call.size, stream, pool, is_small, expandable))
    blocks: dict[int, list[OldBlock]] = {start: [] for start in ranges.starts}
    homeless = 0
    for block in [*old, *_untouched(device, untouched_from, touched)]:
        home = ranges.at(block.address)
        if home is None:
            homeless += 1
        else:
            blocks[home.address].append(block)
    return Start(
        tuple(
            replace(ranges.by_start[start], blocks=tuple(sorted(blocks[start], key=lambda b: b.address)))
            for start in ranges.starts
        ),
        homeless,
    )


def _untouched(device: DeviceSnapshot, first_key: int, touched: NDArray[np.uint64]) -> Iterable[OldBlock]:
    """Blocks that are in use at the end and that no event mentions; their true size is known."""
    b = device.blocks
    rows = np.flatnonzero((b.state != BlockState.INACTIVE) & ~np.isin(b.address, touched))
    for key, i in enumerate(rows.tolist(), first_key):
        size = int(b.size[i])
        pending = bool(b.state[i] == BlockState.ACTIVE_PENDING_FREE)
        yield OldBlock(key, int(b.address[i]), int(b.requested[i]) or size, size, pending)


def with_extents(start: Start, policy: Policy, extra: dict[int, int]) -> Start:
    """Gives every old block its size: the rounded request, and what can only belong to it.

    In a fixed large segment no idle stretch is 1 MiB or shorter (a larger rest would have been split off), so such a
    gap behind a block is its own unsplit remainder. With max_split, an oversize block is never split at all.

    Args:
        start: As rolled back.
        policy: The recorded setting's rules.
        extra: Further bytes by life number, found by comparing a replay with the recording.
    """
    segments = []
    for segment in start.segments:
        rounded = policy.round(np.array([b.request for b in segment.blocks], np.int64)).tolist()
        ends = [b.address for b in segment.blocks[1:]] + [segment.address + segment.size]
        blocks = []
        for block, size, end in zip(segment.blocks, rounded, ends, strict=False):
            room = end - block.address
            if block.size:
                size = block.size  # noqa: PLW2901
            elif not segment.expandable and not segment.is_small:
                size += extra.get(block.key, 0)  # noqa: PLW2901
                if room - size <= SMALL_REQUEST or policy.max_split <= size < UNLIMITED:
                    size = room  # noqa: PLW2901
            blocks.append(replace(block, size=max(min(size, room), 0)))
        segments.append(replace(segment, blocks=tuple(b for b in blocks if b.size)))
    return replace(start, segments=tuple(segments))
