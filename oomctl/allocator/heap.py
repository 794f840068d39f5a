"""The caching allocator itself: best fit, split, merge, grow, collect, flush (CUDACachingAllocator.cpp `malloc`).

A request goes through up to five attempts, in this order:

1. `take`: the best fit among the idle blocks of its pool and stream;
2. garbage collection of old whole segments, where a memory fraction and a threshold are set;
3. new memory from the driver, within the limits;
4. with max_split: the release of one cached oversize block (or several), then the driver again;
5. a flush of all caches, then the driver again. The idle blocks are *not* searched again after the flush.

All state is addresses and sizes in bytes; nothing here knows a trace.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import Protocol

from oomctl.allocator import expandable
from oomctl.allocator.blocks import Arena, Block, Pool, Region, link
from oomctl.allocator.policy import MIN_BLOCK, SMALL_REQUEST, UNLIMITED, Policy
from oomctl.model.snapshot import DEFAULT_POOL, PoolId


class Driver(Protocol):
    """Where new memory lies; the driver decides that, not the allocator. It is told of every call."""

    def segment_alloc(self, size: int) -> int:
        """The address of a new segment."""

    def segment_free(self, address: int, size: int) -> None:
        """A segment was given back."""

    def reserve(self, granule: int) -> int:
        """The base address of a new expandable region."""

    def segment_map(self, address: int, size: int) -> None:
        """Memory was mapped into a region."""

    def segment_unmap(self, address: int, size: int) -> None:
        """Memory was unmapped from a region."""


class Heap:
    """One device's caching allocator under one policy.

    Attributes:
        policy: The rules.
        driver: Gives addresses.
        fraction: Bytes; growth of reserved plus the request's segment size beyond it is refused before the driver is
            asked (set_per_process_memory_fraction).
        capacity: Bytes; what the driver really has for this process.
        reserved: Bytes held from the driver.
        peak_reserved: Their highest value.
        retries: Requests that came down to the flush.
        allocs: Driver calls that gave memory.
        frees: Driver calls that took memory back.
        segments: First block of each fixed segment by address.
        regions: Expandable regions.
        pending: Blocks that the program has freed but another stream may still use, by the caller's key.
        freeable: Ids of private pools that nothing uses any more: a flush releases them too.
    """

    def __init__(self, policy: Policy, driver: Driver, fraction: int = UNLIMITED, capacity: int = UNLIMITED) -> None:
        self.policy = policy
        self.driver = driver
        self.fraction = fraction
        self.capacity = capacity
        self.reserved = self.peak_reserved = 0
        self.retries = self.allocs = self.frees = 0
        self.segments: dict[int, Block] = {}
        self.regions: list[Region] = []
        self.pending: dict[int, Block] = {}
        self.freeable: dict[PoolId, None] = {}
        self._pools: dict[tuple[PoolId, bool], Pool] = {}
        self._arenas: dict[tuple[PoolId, bool, int], Arena] = {}

    def pool(self, pool_id: PoolId, is_small: bool) -> Pool:
        """The small or large side of a pool, made on first use."""
        key = (pool_id, is_small)
        found = self._pools.get(key)
        if found is None:
            # (n, 0) is a graph being captured; (0, n) a MemPool, inside which nothing was reclaimed before torch 2.13.
            reclaims = pool_id == DEFAULT_POOL or (self.policy.reclaims_in_mempool and pool_id[0] == 0)
            found = self._pools[key] = Pool(pool_id, is_small, reclaims)
        return found

    def arena(self, pool_id: PoolId, is_small: bool, stream: int) -> Arena:
        """The blocks of one pool and stream, made on first use."""
        key = (pool_id, is_small, stream)
        found = self._arenas.get(key)
        if found is None:
            pool = self.pool(pool_id, is_small)
            found = self._arenas[key] = Arena(pool, stream)
            insort(pool.arenas, found, key=lambda arena: arena.stream)
        return found

    def arenas(self) -> Iterable[Arena]:
        """All arenas, in no particular order."""
        return self._arenas.values()

    @property
    def collects(self) -> bool:
        """Whether garbage collection is armed: it needs a threshold and a fraction."""
        return self.policy.gc_threshold > 0 and self.fraction < UNLIMITED

    def malloc(self, arena: Arena, size: int) -> Block | None:
        """Serves a rounded request, or returns None where torch raises OutOfMemoryError."""
        block = self.take(arena, size)
        if block is None:
            block = self.obtain(arena, size)
            if block is None:
                return None
        if block.size != size:
            self.carve(block, size)
        return block

    def take(self, arena: Arena, size: int) -> Block | None:
        """The best fit among the idle blocks, no longer idle; None on a miss (`get_free_block`)."""
        policy = self.policy
        if policy.gc_threshold:
            arena.pool.searches += 1
        idle = arena.idle
        i = bisect_left(idle, (size,))
        if i == len(idle):
            return None
        block = idle[i][2]
        if block.region is not None:
            i = expandable.best_fit(idle, i, policy.expandable)
            if i == len(idle):
                return None
            block = idle[i][2]
        # Oversize blocks are kept for oversize requests, and those must not waste more than the allowed rounding.
        if size < policy.max_split:
            if block.size >= policy.max_split:
                return None
        elif block.size >= size + policy.max_waste:
            return None
        del idle[i]
        block.idle = False
        return block

    def carve(self, block: Block, size: int) -> None:
        """Cuts what a request does not need off a block that was taken: the low part is used, the high part idle."""
        rest = block.size - size
        arena = block.arena
        if arena.pool.is_small or self.policy.expandable:
            if rest < MIN_BLOCK:
                return
        elif rest <= SMALL_REQUEST or size >= self.policy.max_split:
            return
        remainder = Block(block.address + size, rest, arena, block.region)
        block.size = size
        link(block, remainder)
        remainder.idle = True
        remainder.born = arena.pool.searches
        insort(arena.idle, (rest, remainder.address, remainder))

    def release(self, block: Block) -> None:
        """Makes a used block idle and merges it with idle neighbours, the lower one first (`free_block`)."""
        arena = block.arena
        idle = arena.idle
        prev = block.prev
        if prev is not None and prev.idle:
            del idle[bisect_left(idle, (prev.size, prev.address))]
            prev.size += block.size
            after = prev.next = block.next
            if after is not None:
                after.prev = prev
            block = prev
        after = block.next
        if after is not None and after.idle:
            del idle[bisect_left(idle, (after.size, after.address))]
            block.size += after.size
            beyond = block.next = after.next
            if beyond is not None:
                beyond.prev = block
        block.idle = True
        block.born = arena.pool.searches
        insort(idle, (block.size, block.address, block))

    def obtain(self, arena: Arena, size: int) -> Block | None:
        """A block for a request that no idle block fits: attempts 2 to 5 of the module's list."""
        if self.collects:
            self._collect_garbage()
        block = self._grow(arena, size)
        if block is not None:
            return block
        segment = self.policy.segment_size(size)
        if self.policy.rejects_early and self.reserved + segment > self.fraction:
            return None
        if self.policy.max_split < UNLIMITED and self._release_oversize(arena, size):
            block = self._grow(arena, size)
            if block is not None:
                return block
        if not arena.pool.reclaims:
            return None
        self.flush()
        self.retries += 1
        return self._grow(arena, size)

    def _grow(self, arena: Arena, size: int) -> Block | None:
        """New memory from the driver (`alloc_block`); None where a limit refuses it."""
        segment = self.policy.segment_size(size)
        # Expandable or not, the fraction is tested against the size of a whole segment.
        if self.reserved + segment > self.fraction:
            return None
        if self.policy.expandable:
            return expandable.grow(self, arena, size)
        if self.reserved + segment > self.capacity:
            return None
        address = self.driver.segment_alloc(segment)
        self.count_growth(segment)
        block = self.segments[address] = Block(address, segment, arena)
        return block

    def count_growth(self, size: int) -> None:
        """Books memory that the driver gave, in bytes."""
        self.allocs += 1
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)

    def count_shrinkage(self, size: int) -> None:
        """Books memory that the driver took back, in bytes."""
        self.frees += 1
        self.reserved -= size

    def free_segment(self, block: Block) -> None:
        """Gives an idle block, which is a whole fixed segment, back to the driver (cudaFree)."""
        block.arena.remove(block)
        del self.segments[block.address]
        self.count_shrinkage(block.size)
        self.driver.segment_free(block.address, block.size)

    def flush(self) -> None:
        """Gives back all that is idle in whole segments or granules (`release_cached_blocks`, `empty_cache`)."""
        # The device is synchronised first: blocks that waited for another stream are free now.
        for block in self.pending.values():
            self.release(block)
        self.pending.clear()
        for is_small in (False, True):
            self._flush_pool(self.pool(DEFAULT_POOL, is_small))
        for pool_id in self.freeable:
            for is_small in (True, False):
                self._flush_pool(self.pool(pool_id, is_small))

    def flush_private(self, pool_id: PoolId) -> None:
        """Gives back what is idle in one private pool that is no longer in use."""
        self.freeable[pool_id] = None
        for is_small in (True, False):
            self._flush_pool(self.pool(pool_id, is_small))

    def _flush_pool(self, pool: Pool) -> None:
        ranges = []
        for arena in pool.arenas:
            for _, _, block in tuple(arena.idle):
                if block.region is not None:
                    ranges.append(block)
                elif block.is_whole:
                    self.free_segment(block)
        # Unmapping changes the set that is walked, so it comes after.
        for block in ranges:
            expandable.unmap(self, block)

    def _release_oversize(self, arena: Arena, size: int) -> bool:
        """With max_split, frees one cached block that is large enough, or the largest ones until their sum is.

        Returns:
            Whether enough was freed (`release_available_cached_blocks`); what was freed stays freed either way.
        """
        wanted = max(size, self.policy.max_split)
        idle = arena.idle
        i = bisect_left(idle, (wanted,))
        if i < len(idle) and idle[i][2].region is None:
            # Blocks from before the trace may be parts of segments although they are oversize; those cannot go.
            block = idle[i][2]
            if block.is_whole:
                self.free_segment(block)
            return block.is_whole
        freed = 0
        for _, _, block in reversed(idle[:i]):
            if freed >= wanted or block.size < self.policy.max_split:
                break
            if block.region is None and block.is_whole:
                freed += block.size
                self.free_segment(block)
        return freed >= wanted

    def _collect_garbage(self) -> None:
        """Frees whole cached segments of at least average age until reserved is below the threshold.

        Age counts searches of the default large pool since the block became idle (`garbage_collect_cached_blocks`).
        """
        excess = self.reserved - int(self.policy.gc_threshold * self.fraction)
        if excess <= 0:
            return
        pool = self.pool(DEFAULT_POOL, is_small=False)
        now = pool.searches
        candidates = [b for arena in pool.arenas for _, _, b in arena.idle if b.is_whole]
        total_age = sum(now - block.born for block in candidates)
        count, freed, progress = len(candidates), 0, True
        while freed < excess and progress and count > 0:
            average = total_age / count
            progress = False
            kept = []
            for block in candidates:
                if now - block.born >= average and block.region is None:
                    progress = True
                    freed += block.size
                    total_age -= now - block.born
                    count -= 1
                    self.free_segment(block)
                else:
                    kept.append(block)
            candidates = kept
