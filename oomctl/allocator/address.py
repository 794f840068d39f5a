"""Where the driver puts new memory: models of an order that no snapshot explains.

Best fit breaks ties between blocks of equal size by address, so the order of segment addresses decides results. On
Linux the CUDA driver was seen to take address space in chunks aligned to 32 MiB from the top downwards, to put what
fits into the unused rest of a recent chunk, and to give an empty chunk back. Replaying under more than one model shows
whether a result rests on such ties.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from oomctl.allocator.policy import SEGMENT_STEP
from oomctl.model.snapshot import Action

CHUNK: Final = 32 << 20
"""Bytes that address space is taken in."""
RECENT: Final = 3
"""Chunks whose rests the driver was seen to fill."""
TOP: Final = 1 << 47
"""Where descending address space starts when nothing was recorded."""
REGION_BASE: Final = 1 << 52
REGION_STRIDE: Final = 1 << 42


class DriverCall(NamedTuple):
    """One recorded segment event.

    Attributes:
        action: SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP or SEGMENT_UNMAP.
        address: Start of the segment or range.
        size: Bytes.
        event: Trace index.
    """

    action: int
    address: int
    size: int
    event: int


class Regions:
    """Base addresses for expandable regions, far from any segment and from each other."""

    def __init__(self) -> None:
        self._reserved = 0

    def reserve(self, granule: int) -> int:
        """The base of a new region."""
        self._reserved += 1
        return REGION_BASE + self._reserved * REGION_STRIDE

    def segment_map(self, address: int, size: int) -> None:
        """Nothing to keep: a region's addresses are its own."""

    def segment_unmap(self, address: int, size: int) -> None:
        """Nothing to keep."""


class Descending(Regions):
    """Every new segment lies just below all earlier ones; the plainest model, kept as a second opinion."""

    def __init__(self, occupied: Sequence[tuple[int, int]] = ()) -> None:
        super().__init__()
        self._lowest = min((address for address, _ in occupied), default=TOP)

    def segment_alloc(self, size: int) -> int:
        """The address of a new segment."""
        self._lowest -= -(-size // SEGMENT_STEP) * SEGMENT_STEP
        return self._lowest

    def segment_free(self, address: int, size: int) -> None:
        """Address space is not used again."""


class Chunks(Regions):
    """32 MiB-aligned chunks from the top downwards; rests of the newest chunks are filled first.

    Args:
        occupied: (address, size) of segments that exist already.
    """

    def __init__(self, occupied: Sequence[tuple[int, int]] = ()) -> None:
        super().__init__()
        self._chunks: dict[int, tuple[int, list[tuple[int, int]]]] = {}  # start -> (end, holes), oldest first
        self._starts: list[int] = []
        for address, size in sorted(occupied, reverse=True):
            self.take(address, size)

    def segment_alloc(self, size: int) -> int:
        """The address of a new segment: the lowest fitting hole of a recent chunk, else a new chunk."""
        for _, holes in islice(reversed(self._chunks.values()), RECENT):
            for start, end in holes:
                if end - start >= size:
                    self.take(start, size)
                    return start
        lowest = self._starts[0] if self._starts else TOP
        address = lowest - -(-size // CHUNK) * CHUNK
        self.take(address, size)
        return address

    def take(self, address: int, size: int) -> None:
        """Occupies a stretch, making the chunks that it needs."""
        end = address + size
        position = address
        while position < end:
            start = self._chunk_at(position)
            if start is None:
                start = self._add_chunk(position, end)
            chunk_end, holes = self._chunks[start]
            cut = min(chunk_end, end)
            for i, (low, high) in enumerate(holes):
                if low <= position and cut <= high:
                    rests = ((low, position), (cut, high))
                    holes[i : i + 1] = [rest for rest in rests if rest[0] < rest[1]]
                    break
            position = cut

    def segment_free(self, address: int, size: int) -> None:
        """Frees a stretch; a chunk without a segment is given back."""
        end = address + size
        position = address
        while position < end:
            start = self._chunk_at(position)
            if start is None:
                return
            chunk_end, holes = self._chunks[start]
            cut = min(chunk_end, end)
            insort(holes, (position, cut))
            merged = holes[:1]
            for low, high in holes[1:]:
                if low == merged[-1][1]:
                    merged[-1] = (merged[-1][0], high)
                else:
                    merged.append((low, high))
            holes[:] = merged
            if holes == [(start, chunk_end)]:
                del self._chunks[start]
                del self._starts[bisect_right(self._starts, start) - 1]
            position = cut

    def is_free(self, address: int, size: int) -> bool:
        """Whether nothing occupies any of a stretch."""
        end = address + size
        i = max(bisect_right(self._starts, address) - 1, 0)
        while i < len(self._starts) and self._starts[i] < end:
            start = self._starts[i]
            stop, holes = self._chunks[start]
            low, high = max(start, address), min(stop, end)
            if low < high and not any(a <= low and high <= b for a, b in holes):
                return False
            i += 1
        return True

    def _chunk_at(self, address: int) -> int | None:
        """Start of the chunk that holds an address."""
        i = bisect_right(self._starts, address) - 1
        if i < 0:
            return None
        start = self._starts[i]
        return start if address < self._chunks[start][0] else None

    def _add_chunk(self, position: int, end: int) -> int:
        """A chunk around [position, end) that stops short of its neighbours."""
        i = bisect_right(self._starts, position)
        start = position // CHUNK * CHUNK
        if i:
            start = max(start, self._chunks[self._starts[i - 1]][0])
        stop = -(-end // CHUNK) * CHUNK
        if i < len(self._starts):
            stop = min(stop, self._starts[i])
        self._chunks[start] = (stop, [(start, stop)])
        insort(self._starts, start)
        return start


class Recorded(Chunks):
    """Recorded addresses as long as the driver calls are the recorded ones, then the chunk rule.

    Attributes:
        matched: Recorded driver calls that were made again, in order, before the first difference.
        exact: Whether no call has differed so far.

    Args:
        calls: Recorded segment events in order of time.
        occupied: (address, size) of segments that existed before.
    """

    def __init__(self, calls: Sequence[DriverCall], occupied: Sequence[tuple[int, int]] = ()) -> None:
        super().__init__(occupied)
        self._calls = calls
        self.matched = 0
        self.exact = True

    def _follow(self, action: Action, size: int, address: int | None = None) -> int | None:
        """The recorded address if the next recorded call is this one."""
        if self.exact and self.matched < len(self._calls):
            call = self._calls[self.matched]
            matches = call.action == action and call.size == size and address in (None, call.address)
            # A file may contradict itself; two segments never share an address.
            if matches and (action != Action.SEGMENT_ALLOC or self.is_free(call.address, size)):
                self.matched += 1
                return call.address
        self.exact = False
        return None

    def segment_alloc(self, size: int) -> int:
        """The recorded address, or the chunk rule's."""
        address = self._follow(Action.SEGMENT_ALLOC, size)
        if address is None:
            return super().segment_alloc(size)
        self.take(address, size)
        return address

    def segment_free(self, address: int, size: int) -> None:
        """A segment was given back."""
        self._follow(Action.SEGMENT_FREE, size, address)
        super().segment_free(address, size)

    def reserve(self, granule: int) -> int:
        """The address of the map call that comes next in the recording, or a made-up base."""
        if self.exact and self.matched < len(self._calls):
            call = self._calls[self.matched]
            if call.action == Action.SEGMENT_MAP:
                return call.address
        return super().reserve(granule)

    def segment_map(self, address: int, size: int) -> None:
        """Memory was mapped into a region."""
        self._follow(Action.SEGMENT_MAP, size, address)

    def segment_unmap(self, address: int, size: int) -> None:
        """Memory was unmapped from a region."""
        self._follow(Action.SEGMENT_UNMAP, size, address)


class Noted(Chunks):
    """`Chunks` that tells somebody of every call.

    Args:
        note: Given the action, the address and the bytes.
    """

    def __init__(self, note: Callable[[Action, int, int], object]) -> None:
        super().__init__()
        self._note = note

    def segment_alloc(self, size: int) -> int:
        """See `Chunks`."""
        address = super().segment_alloc(size)
        self._note(Action.SEGMENT_ALLOC, address, size)
        return address

    def segment_free(self, address: int, size: int) -> None:
        """See `Chunks`."""
        super().segment_free(address, size)
        self._note(Action.SEGMENT_FREE, address, size)

    def segment_map(self, address: int, size: int) -> None:
        """See `Chunks`."""
        super().segment_map(address, size)
        self._note(Action.SEGMENT_MAP, address, size)

    def segment_unmap(self, address: int, size: int) -> None:
        """See `Chunks`."""
        super().segment_unmap(address, size)
        self._note(Action.SEGMENT_UNMAP, address, size)
