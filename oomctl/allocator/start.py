"""The state before the first event of a trace, rolled back from the final segments.

A complete trace starts with nothing. A ring buffer that has overflowed starts in the middle: segments and blocks were
there already, and the true size of such a block can be larger than its request says.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.allocator.address import DriverCall
from oomctl.allocator.policy import SMALL_REQUEST, SMALL_SEGMENT, UNLIMITED, Policy
from oomctl.model.snapshot import DEFAULT_POOL, Action, BlockState, DeviceSnapshot, PoolId

CLOSE: Final = 1 << 35
"""Bytes of address space."""
LARGE_GRANULE: Final = 20 << 20
Owner = tuple[PoolId, bool, int]
"""(pool id, is_small, stream): what a segment belongs to for life."""


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

    @property
    def owner(self) -> Owner:
        """What it belongs to."""
        return (self.pool_id, self.is_small, self.stream)


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that existed before the first event.

    Attributes:
        segments: Ascending by address.
        homeless: Blocks in use that lie in no known segment; a replay cannot place them.
        floors: Lowest address that was ever mapped, by owner; an expandable region starts there or below.
    """

    segments: tuple[OldSegment, ...] = ()
    homeless: int = 0
    floors: Mapping[Owner, int] = field(default_factory=dict)

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
        """Adds a range, unless it overlaps another: then the file contradicts itself."""
        i = bisect_left(self.starts, segment.address)
        free = i == len(self.starts) or self.starts[i] >= segment.address + segment.size
        if segment.size > 0 and free and self.at(segment.address) is None:
            self.starts.insert(i, segment.address)
            self.by_start[segment.address] = segment

    def at(self, address: int) -> OldSegment | None:
        """The range that holds an address."""
        i = bisect_right(self.starts, address) - 1
        if i < 0:
            return None
        segment = self.by_start[self.starts[i]]
        return segment if address < segment.address + segment.size else None

    def join(self) -> None:
        """Makes one range of expandable ones that touch: blocks reach across."""
        joined: list[OldSegment] = []
        for start in self.starts:
            segment = self.by_start[start]
            last = joined[-1] if joined else segment
            touches = last.address + last.size == start and last.owner == segment.owner
            if touches and last.expandable and segment.expandable:
                joined[-1] = replace(last, size=last.size + segment.size)
            else:
                joined.append(segment)
        self.starts = [segment.address for segment in joined]
        self.by_start = {segment.address: segment for segment in joined}

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


class _Owners:
    """Who owns the address space of expandable regions, by the ranges that are known.

    Regions lie further apart than a card is large, so a known range of the same stream close by tells.
    """

    def __init__(self, known: Sequence[tuple[int, Owner]]) -> None:
        self.by_stream: dict[int, list[tuple[int, Owner]]] = {}
        self.floors: dict[Owner, int] = {}
        for address, owner in sorted(known):
            self.by_stream.setdefault(owner[2], []).append((address, owner))
            self.floors.setdefault(owner, address)

    def nearest(self, address: int, stream: int) -> Owner | None:
        known = self.by_stream.get(stream, [])
        i = bisect_left(known, (address,))
        around = [(abs(at - address), owner) for at, owner in known[max(i - 1, 0) : i + 1]]
        distance, owner = min(around, default=(CLOSE, None))
        return owner if distance < CLOSE else None


def start_state(
    device: DeviceSnapshot,
    calls: Sequence[DriverCall],
    old: Iterable[OldBlock],
    mapped: Iterable[tuple[int, Owner]],
    untouched_from: int,
    touched: NDArray[np.bool_],
) -> Start:
    """Rolls the segments back through all segment events and puts the old blocks into them.

    Args:
        device: For its final segments and its trace.
        calls: Recorded segment events.
        old: Blocks from before the trace that it mentions.
        mapped: Address and owner of each range that was mapped in the trace.
        untouched_from: First free life number, for old blocks that the trace never mentions.
        touched: bool[blocks], the final blocks that it mentions.
    """
    trace = device.trace
    assert trace is not None
    ranges = _Ranges(device)
    owners = _Owners([*mapped, *((s.address, s.owner) for s in ranges.by_start.values() if s.expandable)])
    for call in reversed(calls):
        if call.action in (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP):
            ranges.cut(call.address, call.address + call.size)
            continue
        expandable = call.action == Action.SEGMENT_UNMAP
        stream = int(trace.stream[call.event])
        owner = owners.nearest(call.address, stream) if expandable else None
        # Granules are 2 MiB in the small pool and 20 MiB in the large one, unless large_segment_size says otherwise.
        small = call.size % LARGE_GRANULE != 0 if expandable else call.size == SMALL_SEGMENT
        pool_id, is_small, _ = owner or (DEFAULT_POOL, small, stream)
        if trace.pool is not None and trace.pool[call.event] >= 0:
            pool_id = device.pools[int(trace.pool[call.event])]
        ranges.add(OldSegment(call.address, call.size, stream, pool_id, is_small, expandable))
    ranges.join()
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
        owners.floors,
    )


def _untouched(device: DeviceSnapshot, first_key: int, touched: NDArray[np.bool_]) -> Iterable[OldBlock]:
    """Blocks that are in use at the end and that no event mentions; their true size is known."""
    b = device.blocks
    rows = np.flatnonzero((b.state != BlockState.INACTIVE) & ~touched)
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
