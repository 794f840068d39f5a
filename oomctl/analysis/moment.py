"""The moment: which event the report is about, and the state of the heap right after it.

A snapshot is written after the exception has unwound, so its segments are not the state at the failure. Everything
after the fatal `oom` event is rolled back here.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.curves import active_curve
from oomctl.analysis.lives import Lives
from oomctl.model.snapshot import WENT_ON_ALLOCS, Action, DeviceSnapshot, Trace

SMALL_SEGMENT: Final = 2 << 20
"""Size of the small pool's segments (kSmallBuffer)."""

UNSPLIT_REST: Final = 1 << 20
"""A rest of up to this many bytes is never split off a large block (`should_split`, kSmallSize)."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Which event the report is about.

    Attributes:
        event: Index of the last event that has happened; -1 when there is no trace.
        kind: "oom" (fatal failure), "peak" (no failure: highest live bytes) or "end" (no trace).
        recovered: Indices of oom events after which the program went on.
    """

    event: int
    kind: str
    recovered: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Heap:
    """Segments, live blocks and holes at one moment.

    Attributes:
        address: uint64[s], segment starts, ascending; an expandable segment's mapped ranges are one row each.
        size: int64[s], bytes.
        stream: uint64[s].
        pool: int32[s], index into the device's pools.
        is_large: bool[s].
        is_expandable: bool[s].
        live: int64[b], rows of `Lives`, ascending by address.
        live_size: int64[b], bytes of the block, rests that were too small to split off included.
        live_segment: int64[b], segment of each live block.
        live_pending: bool[b], freed by the program and waiting for another stream.
        hole_address: uint64[h].
        hole_size: int64[h], bytes.
        hole_segment: int64[h].
        outside: Live blocks that lie in no segment (0 in a consistent file).
    """

    address: NDArray[np.uint64]
    size: NDArray[np.int64]
    stream: NDArray[np.uint64]
    pool: NDArray[np.int32]
    is_large: NDArray[np.bool_]
    is_expandable: NDArray[np.bool_]
    live: NDArray[np.int64]
    live_size: NDArray[np.int64]
    live_segment: NDArray[np.int64]
    live_pending: NDArray[np.bool_]
    hole_address: NDArray[np.uint64]
    hole_size: NDArray[np.int64]
    hole_segment: NDArray[np.int64]
    outside: int

    @property
    def reserved(self) -> int:
        """Reserved bytes."""
        return int(self.size.sum())

    @property
    def active(self) -> int:
        """Active bytes, pending frees included."""
        return int(self.live_size.sum())

    @property
    def pending(self) -> int:
        """Active bytes that the program freed and that wait for another stream."""
        return int(self.live_size[self.live_pending].sum())

    def live_bytes_by_segment(self) -> NDArray[np.int64]:
        """int64[s]: active bytes in each segment."""
        return np.bincount(self.live_segment, self.live_size, len(self.size)).astype(np.int64)


def find_moment(device: DeviceSnapshot, lives: Lives, expected: int | None = None) -> Moment:
    """The last fatal oom event, else the peak of live bytes, else the end.

    Libraries swallow failures (cuDNN's algorithm search, batch finders); an oom after which allocations go on is
    a recovered one.

    Args:
        device: One device.
        lives: Its blocks.
        expected: Segment size of the request that a log names as fatal; such an event is preferred.
    """
    trace = device.trace
    if trace is None:
        return Moment(-1, "end")
    ooms = np.flatnonzero(trace.action == Action.OOM)
    if len(ooms):
        last = int(ooms[-1])
        after = int((trace.action[last:] == Action.ALLOC).sum())
        named = expected is not None and abs(segment_size(int(trace.size[last])) - expected) <= max(expected // 100, 1)
        if after < WENT_ON_ALLOCS or named:
            return Moment(last, "oom", tuple(int(i) for i in ooms[:-1]))
    curve = active_curve(lives)
    peak = int(curve.argmax()) if len(curve) else -1
    return Moment(peak, "peak" if len(curve) else "end", tuple(int(i) for i in ooms))


def segment_size(rounded: int, large_segment: int = 20 << 20) -> int:
    """Bytes of the segment that a rounded request would take (`get_allocation_size`)."""
    if rounded <= UNSPLIT_REST:
        return SMALL_SEGMENT
    if rounded < 10 << 20:
        return large_segment
    return -(-rounded // SMALL_SEGMENT) * SMALL_SEGMENT


def heap_at(
    device: DeviceSnapshot, lives: Lives, event: int, max_split: int | None = None, non_split_rounding: int = 20 << 20
) -> Heap:
    """State of the heap right after an event.

    Args:
        device: One device.
        lives: Its blocks.
        event: Trace index; -1 without a trace.
        max_split: max_split_size in force, bytes, or None.
        non_split_rounding: max_non_split_rounding in force, bytes.
    """
    address, size, stream, pool, large, expandable = _segments_at(device, event)
    rows = np.flatnonzero(lives.alive(event)) if device.trace is not None else np.arange(len(lives))
    rows = rows[np.argsort(lives.address[rows], kind="stable")]
    start = lives.address[rows]
    segment = np.searchsorted(address, start, side="right") - 1
    inside = segment >= 0
    if len(address):
        inside &= start < address[np.maximum(segment, 0)] + size[np.maximum(segment, 0)].astype(np.uint64)
    outside = int((~inside).sum())
    rows, start, segment = rows[inside], start[inside], segment[inside]
    live_size = lives.size[rows].copy()
    end_of_segment = address + size.astype(np.uint64)

    # Room until the next block or the segment's end; a small rest in a large fixed segment belongs to the block.
    limit = end_of_segment[segment] if len(segment) else np.zeros(0, np.uint64)
    if len(rows) > 1:
        same = segment[1:] == segment[:-1]
        limit[:-1] = np.where(same, start[1:], limit[:-1])
    room = (limit - start).astype(np.int64)
    live_size = np.minimum(live_size, np.maximum(room, 0))
    gap = room - live_size
    fixed = large[segment] & ~expandable[segment] if len(segment) else np.zeros(0, bool)
    rest = np.where((live_size >= max_split) if max_split is not None else False, non_split_rounding, UNSPLIT_REST)
    live_size = np.where(fixed & (gap > 0) & (gap <= rest), room, live_size)
    gap = room - live_size

    hole_address = [start + live_size.astype(np.uint64)]
    hole_size, hole_segment = [gap], [segment]
    first = np.full(len(address), -1, np.int64)
    first[segment[::-1]] = np.arange(len(segment))[::-1]
    lead_end = np.where(first >= 0, start[np.maximum(first, 0)] if len(start) else 0, end_of_segment)
    hole_address.append(address)
    hole_size.append((lead_end.astype(np.uint64) - address).astype(np.int64))
    hole_segment.append(np.arange(len(address)))
    sizes = np.concatenate(hole_size)
    real = sizes > 0
    h_segment = np.concatenate(hole_segment).astype(np.int64)
    pending = lives.asked[rows] <= event
    if device.trace is None:
        pending = lives.asked[rows] < 0
    return Heap(
        address, size, stream, pool, large, expandable, rows, live_size, segment, pending,
        np.concatenate(hole_address)[real], sizes[real], h_segment[real], outside,
    )  # fmt: skip


_SegmentColumns = tuple[
    NDArray[np.uint64], NDArray[np.int64], NDArray[np.uint64], NDArray[np.int32], NDArray[np.bool_], NDArray[np.bool_]
]


def _segments_at(device: DeviceSnapshot, event: int) -> _SegmentColumns:
    """Final segments with the segment events after `event` undone."""
    s, trace = device.segments, device.trace
    undo = np.zeros(0, np.int64)
    if trace is not None:
        later = trace.action[event + 1 :]
        undo = event + 1 + np.flatnonzero((later >= Action.SEGMENT_ALLOC) & (later <= Action.SEGMENT_UNMAP))
    if not len(undo):
        return s.address, s.size, s.stream, s.pool, s.is_large, s.is_expandable
    assert trace is not None
    # (size, stream, pool, large, expandable) by start, and the starts in order, because ranges split and join.
    rows: dict[int, tuple[int, int, int, bool, bool]] = {
        a: (z, t, p, g, x)
        for a, z, t, p, g, x in zip(
            s.address.tolist(), s.size.tolist(), s.stream.tolist(), s.pool.tolist(), s.is_large.tolist(),
            s.is_expandable.tolist(), strict=True,
        )
    }  # fmt: skip
    starts = sorted(rows)
    for i in undo[::-1].tolist():
        _undo(trace, i, rows, starts)
    columns = [rows[a] for a in sorted(rows)]
    arrays = [np.array([c[k] for c in columns], t) for k, t in enumerate(("i8", "u8", "i4", "?", "?"))]
    return (np.array(sorted(rows), np.uint64), *arrays)  # type: ignore[return-value]


def _undo(trace: Trace, i: int, rows: dict[int, tuple[int, int, int, bool, bool]], starts: list[int]) -> None:
    """Takes one segment event back."""
    action, address, size = int(trace.action[i]), int(trace.address[i]), int(trace.size[i])
    if action == Action.SEGMENT_ALLOC:
        if rows.pop(address, None) is not None:
            del starts[bisect_right(starts, address) - 1]
        return
    pool = max(int(trace.pool[i]), 0) if trace.pool is not None else 0
    if action in (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP):
        # Large segments are a multiple of 2 MiB from 10 MiB on; a granule of the small pool is 2 MiB.
        expandable = action == Action.SEGMENT_UNMAP
        large = size != SMALL_SEGMENT
        end = address + size
        if expandable:
            at = bisect_right(starts, address) - 1
            if at >= 0:
                before = rows[starts[at]]
                if before[4] and starts[at] + before[0] == address:
                    address, pool, large = starts[at], before[2], before[3]
                    del starts[at]
                    del rows[address]
            behind = rows.get(end)
            if behind is not None and behind[4]:
                end += behind[0]
                pool, large = behind[2], behind[3]
                del rows[end - behind[0]]
                del starts[bisect_right(starts, end - behind[0]) - 1]
        rows[address] = (end - address, int(trace.stream[i]), pool, large, expandable)
        starts.insert(bisect_right(starts, address), address)
        return
    at = bisect_right(starts, address) - 1  # a map: the range was not there before
    if at < 0:
        return
    start = starts[at]
    length, stream, pool, large, expandable = rows[start]
    if address + size > start + length:
        return
    del rows[start], starts[at]
    for a, z in ((start, address - start), (address + size, start + length - address - size)):
        if z > 0:
            rows[a] = (z, stream, pool, large, expandable)
            starts.insert(bisect_right(starts, a), a)
