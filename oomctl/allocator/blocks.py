"""Blocks, and the ordered sets of free ones that the allocator searches.

A segment (or an expandable range) is a chain of blocks linked by `prev` and `next`. Within one chain two idle
neighbours never stand side by side: they merge at once.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from oomctl.model.snapshot import PoolId


class Region:
    """One virtual address range of expandable segments; grows by whole granules counted from its base.

    Attributes:
        base: First address.
        granule: Bytes that are mapped and unmapped at a time.
        first: Its first block.
    """

    __slots__ = ("base", "first", "granule")

    def __init__(self, base: int, granule: int) -> None:
        self.base = base
        self.granule = granule
        self.first: Block


class Block:
    """A stretch of memory that is one of: in use, idle (free and mapped) or unmapped.

    Attributes:
        address: Start.
        size: Bytes.
        prev: Neighbour below in the same segment or region.
        next: Neighbour above.
        idle: Mapped and free to be handed out or merged.
        mapped: False only for the parts of a region that hold no memory.
        arena: Where it belongs for life.
        region: Its expandable region; None for a block of a fixed segment.
        born: Searches of its pool at the time it became idle; what garbage collection calls its age counts from there.
    """

    __slots__ = ("address", "arena", "born", "idle", "mapped", "next", "prev", "region", "size")

    def __init__(self, address: int, size: int, arena: Arena, region: Region | None = None) -> None:
        self.address = address
        self.size = size
        self.arena = arena
        self.region = region
        self.prev: Block | None = None
        self.next: Block | None = None
        self.idle = False
        self.mapped = True
        self.born = 0

    @property
    def growable(self) -> int:
        """Bytes it could become by mapping the unmapped space behind it."""
        after = self.next
        return self.size if after is None or after.mapped else self.size + after.size

    @property
    def is_whole(self) -> bool:
        """Whether it is its whole segment or region."""
        return self.prev is None and self.next is None


class Pool:
    """A small or a large pool: the default one's, or a private one's (graph capture, MemPool).

    Attributes:
        id: torch's pool id.
        is_small: For rounded requests up to 1 MiB.
        reclaims: Whether a failing request here may flush the caches; not so while a graph is being captured.
        searches: Best-fit searches so far; the clock of garbage collection.
        arenas: One a stream, ascending by stream handle.
    """

    __slots__ = ("arenas", "id", "is_small", "reclaims", "searches")

    def __init__(self, pool_id: PoolId, is_small: bool, reclaims: bool) -> None:
        self.id = pool_id
        self.is_small = is_small
        self.reclaims = reclaims
        self.searches = 0
        self.arenas: list[Arena] = []


class Arena:
    """The blocks of one pool that belong to one stream; no other stream ever gets them.

    Attributes:
        pool: The pool.
        stream: Raw stream handle.
        idle: (size, address, block) ascending: the best fit is the first entry not below the request.
        unmapped: (address, block) ascending: the parts of expandable regions without memory.
    """

    __slots__ = ("idle", "pool", "stream", "unmapped")

    def __init__(self, pool: Pool, stream: int) -> None:
        self.pool = pool
        self.stream = stream
        self.idle: list[tuple[int, int, Block]] = []
        self.unmapped: list[tuple[int, Block]] = []

    def add(self, block: Block) -> None:
        """Puts a mapped block among the idle ones; does not merge."""
        block.idle = True
        block.born = self.pool.searches
        insort(self.idle, (block.size, block.address, block))

    def remove(self, block: Block) -> None:
        """Takes a block out of the idle ones; its size must not have changed since it was added."""
        idle = self.idle
        del idle[bisect_left(idle, (block.size, block.address))]
        block.idle = False

    def add_unmapped(self, block: Block) -> None:
        """Marks a block as without memory and lists it as such."""
        block.mapped = block.idle = False
        insort(self.unmapped, (block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        """Takes a block out of the unmapped ones."""
        unmapped = self.unmapped
        del unmapped[bisect_left(unmapped, (block.address,))]


def link(left: Block, right: Block) -> None:
    """Inserts `right` behind `left` in its chain."""
    after = right.next = left.next
    right.prev = left
    left.next = right
    if after is not None:
        after.prev = right


def unlink(block: Block) -> None:
    """Takes a block, which has a neighbour below, out of its chain."""
    before, after = block.prev, block.next
    if before is not None:
        before.next = after
    if after is not None:
        after.prev = before
