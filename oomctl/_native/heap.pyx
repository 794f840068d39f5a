# cython: language_level=3, boundscheck=True, wraparound=False, initializedcheck=True, cdivision=True
# distutils: language = c++
"""The simulated caching allocator, compiled: the rules of `oomctl.allocator.heap` and `.expandable`, step for step.

That Python code is the reference and says why each rule is as it is; here it is only repeated with ordered sets, and
tests hold the two to the same results. Blocks are rows of a table; every access to one is checked.
"""

cimport cython
from cython.operator cimport dereference, predecrement, preincrement
from libc.stdint cimport int32_t, int64_t, uint8_t
from libcpp cimport bool as cbool
from libcpp.map cimport map as cmap
from libcpp.set cimport set as cset
from libcpp.vector cimport vector


cdef extern from "heap.hpp" namespace "oomctl" nogil:
    cdef cppclass Block:
        int64_t address, size, born
        int32_t prev, next, arena, region
        cbool idle, mapped

    cdef cppclass Blocks:
        void push_back(const Block &) except +
        Block &at(size_t) except +
        size_t size()

    cdef cppclass Fit:
        Fit()
        Fit(int64_t, int64_t, int32_t)
        int64_t size, address
        int32_t block


ctypedef cset[Fit] Idle

cdef struct Region:
    int64_t base
    int64_t granule
    int32_t first

cdef enum Op:
    ALLOC, FREE, FREE_REQUESTED, FREE_COMPLETED, OOM, EMPTY_CACHE, RELEASE_POOL

cdef int64_t MIN_BLOCK = 512
cdef int64_t SMALL_REQUEST = 1 << 20
cdef int64_t SMALL_SEGMENT = 2 << 20
cdef int64_t OWN_SEGMENT = 10 << 20
cdef int64_t SEGMENT_STEP = 2 << 20
cdef int64_t UNLIMITED = <int64_t>1 << 62
cdef int64_t REGION_SIZE = <int64_t>1 << 40
cdef int64_t LOWEST = -(<int64_t>1 << 62)


@cython.final
cdef class Machine:
    """One device's allocator, its arenas known from the start, and the counters of a replay.

    Args:
        policy: An `oomctl.allocator.policy.Policy`.
        driver: An `oomctl.allocator.heap.Driver`.
        pools: (is small, may reclaim) of each pool; pools 0 and 1 are the default pool's large and small side, and
            so on in pairs.
        arenas: Number of the pool of each arena.
        by_stream: For each pool its arenas, ascending by stream.
        lives: How many numbers of lives there are.
    """

    cdef readonly object driver
    cdef readonly int64_t fraction, capacity, reserved, peak_reserved, retries, allocs, frees
    cdef readonly int64_t allocated, peak_allocated, placed, exact, rescued
    cdef readonly int64_t failed_row, mismatch_row, mismatch_size, mismatch_recorded, mismatch_address
    cdef readonly int32_t mismatch_block
    cdef readonly int served                 # -1 while there was no fatal request
    cdef cbool expandable, rejects_early
    cdef int64_t max_split, max_waste, large_segment
    cdef double gc_threshold
    cdef Blocks blocks
    cdef vector[int32_t] unused
    cdef vector[uint8_t] pool_small, pool_reclaims
    cdef vector[int64_t] searches
    cdef vector[vector[int32_t]] pool_arenas
    cdef vector[int32_t] arena_pool
    cdef vector[Idle] idle
    cdef vector[cmap[int64_t, int32_t]] unmapped
    cdef vector[Region] regions
    cdef cmap[int64_t, int32_t] segments     # first block of each fixed segment by address
    cdef cmap[int64_t, int32_t] pending      # by when the program freed them
    cdef cmap[int64_t, int64_t] waiting      # life -> key of `pending`
    cdef int64_t waits
    cdef vector[int32_t] freeable            # pools in the order in which they were released
    cdef vector[int32_t] live                # block of each life, -1 for none
    cdef vector[int64_t] curve_row, curve_reserved
    cdef public list arenas, pools           # what the numbers stand for, kept for the caller

    def __cinit__(self, policy, driver, pools, arenas, by_stream, int64_t lives):
        self.driver = driver
        self.fraction = self.capacity = UNLIMITED
        self.expandable = policy.expandable
        self.rejects_early = policy.rejects_early
        self.max_split = min(policy.max_split, UNLIMITED)
        self.max_waste = min(policy.max_waste, UNLIMITED // 2)  # sizes are added to it
        self.large_segment = policy.large_segment
        self.gc_threshold = policy.gc_threshold
        for is_small, reclaims in pools:
            self.pool_small.push_back(bool(is_small))
            self.pool_reclaims.push_back(bool(reclaims))
        self.pool_arenas = by_stream
        self.arena_pool = arenas
        self.searches.resize(len(pools), 0)
        self.idle.resize(len(arenas))
        self.unmapped.resize(len(arenas))
        self.live.resize(lives, -1)
        self.failed_row = self.mismatch_row = self.mismatch_block = -1
        self.served = -1

    def limit(self, int64_t fraction, int64_t capacity):
        """Sets the limits that hold from here on, in bytes."""
        self.fraction, self.capacity = fraction, capacity

    # What a heap is filled with and read out by: rows of (address, size, prev, next, arena, region, idle, mapped, born).

    def fill(self, blocks, segments, regions, pending, live, int64_t reserved, searches):
        """Puts blocks into the empty heap.

        Args:
            blocks: Rows as `rows` gives them.
            segments: First block of each fixed segment.
            regions: (base, granule, first block) of each expandable region; -1 for one that was given back.
            pending: (life, block) of those that wait for another stream, in order.
            live: (life, block) of those in use.
            reserved: Bytes held.
            searches: Of each pool.
        """
        cdef Block block
        cdef int32_t number = 0
        for address, size, prev, next, arena, region, idle, mapped, born in blocks:
            block.address, block.size, block.prev, block.next = address, size, prev, next
            block.arena, block.region, block.idle, block.mapped, block.born = arena, region, idle, mapped, born
            self.blocks.push_back(block)
            if idle:
                (&self.idle.at(block.arena)).insert(Fit(block.size, block.address, number))
            if not mapped:
                (&self.unmapped.at(block.arena))[0][block.address] = number
            number += 1
        for first in segments:
            self.segments[self._of(first).address] = first
        for base, granule, first in regions:
            self.regions.push_back(Region(base, granule, first))
        for life, number in pending:
            self._wait(life, number)
        for life, number in live:
            (&self.live.at(<size_t><int64_t>life))[0] = number
            self.allocated += self._of(number).size
        for i, count in enumerate(searches):
            (&self.searches.at(<size_t>i))[0] = count
        self.reserved = self.peak_reserved = reserved
        self.peak_allocated = self.allocated

    def rows(self):
        """All blocks, those out of use too."""
        cdef size_t i
        cdef Block *b
        cdef list found = []
        for i in range(self.blocks.size()):
            b = &self.blocks.at(i)
            found.append((b.address, b.size, b.prev, b.next, b.arena, b.region, b.idle, b.mapped, b.born))
        return found

    def state(self):
        """First blocks of segments; regions; pending (life, block) in order; live (life, block); searches; freeable."""
        cdef size_t i
        lives = {key: life for life, key in self.waiting}
        return (
            [number for _, number in self.segments],
            [(r.base, r.granule, r.first) for r in self.regions],
            [(lives[key], number) for key, number in self.pending],
            [(i, self.live.at(i)) for i in range(self.live.size()) if self.live.at(i) >= 0],
            list(self.searches),
            list(self.freeable),
        )

    @property
    def has_segments(self):
        """Whether there is any fixed segment."""
        return not self.segments.empty()

    def curve(self):
        """(row, bytes reserved from there on) wherever that may have changed."""
        return list(self.curve_row), list(self.curve_reserved)

    def run(
        self,
        const uint8_t[::1] op,
        const int64_t[::1] life,
        const int64_t[::1] size,
        const int64_t[::1] arena,
        const int64_t[::1] address,
        int64_t first,
        int64_t fatal,
        cbool compare,
        cbool stop_at_mismatch,
    ):
        """Requests, one a row.

        Args:
            op: uint8[n], values of `oomctl.allocator.requests.Op`.
            life: int64[n], which life of which block.
            size: int64[n], bytes, rounded.
            arena: int64[n], number of the arena.
            address: int64[n], recorded address of an alloc.
            first: Number of the first row.
            fatal: Number of the row of the fatal request, -1 for none.
            compare: Count allocations at the recorded address, and go on after failures.
            stop_at_mismatch: Stop at the first that differs.

        Returns:
            Whether to go on.
        """
        cdef Py_ssize_t i, n = op.shape[0]
        cdef cbool more = True
        if life.shape[0] != n or size.shape[0] != n or arena.shape[0] != n or address.shape[0] != n:
            raise ValueError("columns of different lengths")
        with nogil:
            for i in range(n):
                if op[i] == ALLOC:
                    more = self._alloc(first + i, life[i], size[i], <int32_t>arena[i], address[i], compare)
                    if not more or (stop_at_mismatch and self.mismatch_row >= 0):
                        more = False
                        break
                elif op[i] == FREE:
                    self._free(life[i])
                else:
                    self._other(op[i], first + i, life[i], size[i], <int32_t>arena[i], fatal)
        return more

    cdef int _alloc(
        self, int64_t row, int64_t life, int64_t size, int32_t arena, int64_t address, cbool compare
    ) except -1 nogil:
        cdef int32_t number = self._take(arena, size)
        cdef Block *block
        if number < 0:
            number = self._obtain(arena, size)
            self._note(row)
        if number < 0:
            if not compare:
                self.failed_row = row
                return False
            self._mismatch(row, size, address, number)
            return True
        block = self._of(number)
        if block.size != size:
            self._carve(number, size)
        (&self.live.at(<size_t>life))[0] = number
        self.allocated += block.size
        self.peak_allocated = max(self.peak_allocated, self.allocated)
        self.placed += 1
        if compare:
            if block.address == address:
                self.exact += 1
            else:
                self._mismatch(row, size, address, number)
        return True

    cdef int _mismatch(self, int64_t row, int64_t size, int64_t address, int32_t number) except -1 nogil:
        if self.mismatch_row < 0:
            self.mismatch_row, self.mismatch_size, self.mismatch_recorded = row, size, address
            self.mismatch_block = number
            self.mismatch_address = self._of(number).address if number >= 0 else -1
        return 0

    cdef int _note(self, int64_t row) except -1 nogil:
        self.curve_row.push_back(row)
        self.curve_reserved.push_back(self.reserved)
        return 0

    cdef int32_t _end(self, int64_t life) except -2 nogil:
        """Takes a block out of the live ones; -1 where it is none."""
        cdef int32_t *place = &self.live.at(<size_t>life)
        cdef int32_t number = place[0]
        if number >= 0:
            place[0] = -1
            self.allocated -= self._of(number).size
        return number

    cdef int _free(self, int64_t life) except -1 nogil:
        cdef int32_t number = self._end(life)
        if number >= 0:
            self._release(number)
        return 0

    cdef int _wait(self, int64_t life, int32_t number) except -1 nogil:
        self.waits += 1
        self.waiting[life] = self.waits
        self.pending[self.waits] = number
        return 0

    cdef int _other(
        self, uint8_t op, int64_t row, int64_t life, int64_t size, int32_t arena, int64_t fatal
    ) except -1 nogil:
        cdef int32_t number
        cdef cmap[int64_t, int64_t].iterator found
        if op == FREE_REQUESTED:
            number = self._end(life)
            if number >= 0:
                self._wait(life, number)
        elif op == FREE_COMPLETED:
            found = self.waiting.find(life)
            if found != self.waiting.end():
                number = self.pending.at(dereference(found).second)
                self.pending.erase(dereference(found).second)
                self.waiting.erase(found)
                self._release(number)
        elif op == OOM:
            number = self._take(arena, size)
            if number < 0:
                number = self._obtain(arena, size)
            if number >= 0 and self._of(number).size != size:
                self._carve(number, size)
            self._note(row)
            if number >= 0:
                self.peak_allocated = max(self.peak_allocated, self.allocated + self._of(number).size)
                self._release(number)
                self.rescued += row != fatal
            if row == fatal:
                self.served = number >= 0
                self.failed_row = -1 if number >= 0 else row
        else:
            if op == EMPTY_CACHE:
                self._flush()
            else:
                self._flush_private(self.arena_pool.at(<size_t>arena) & ~1)
            self._note(row)
        return 0

    # Blocks

    cdef inline Block *_of(self, int32_t number) except NULL nogil:
        return &self.blocks.at(<size_t>number)

    cdef int32_t _new(self, int64_t address, int64_t size, int32_t arena, int32_t region) except -2 nogil:
        cdef Block block
        cdef int32_t number
        block.address, block.size, block.arena, block.region = address, size, arena, region
        if self.unused.empty():
            number = <int32_t>self.blocks.size()
            self.blocks.push_back(block)
            return number
        number = self.unused.back()
        self.unused.pop_back()
        self._of(number)[0] = block
        return number

    cdef int _drop(self, int32_t number) except -1 nogil:
        """Forgets a block that has become part of another one."""
        cdef Block *block = self._of(number)
        block.idle = False
        block.size = 0
        self.unused.push_back(number)
        return 0

    cdef int _link(self, int32_t left, int32_t right) except -1 nogil:
        cdef Block *a = self._of(left)
        cdef Block *b = self._of(right)
        b.next = a.next
        b.prev = left
        a.next = right
        if b.next >= 0:
            self._of(b.next).prev = right
        return 0

    cdef int _unlink(self, int32_t number) except -1 nogil:
        cdef Block *block = self._of(number)
        if block.prev >= 0:
            self._of(block.prev).next = block.next
        if block.next >= 0:
            self._of(block.next).prev = block.prev
        return self._drop(number)

    cdef int _add(self, int32_t number) except -1 nogil:
        cdef Block *block = self._of(number)
        block.idle = True
        block.born = self.searches.at(<size_t>self.arena_pool.at(<size_t>block.arena))
        (&self.idle.at(<size_t>block.arena)).insert(Fit(block.size, block.address, number))
        return 0

    cdef int _remove(self, int32_t number) except -1 nogil:
        cdef Block *block = self._of(number)
        (&self.idle.at(<size_t>block.arena)).erase(Fit(block.size, block.address, number))
        block.idle = False
        return 0

    cdef int _add_unmapped(self, int32_t number) except -1 nogil:
        cdef Block *block = self._of(number)
        block.mapped = block.idle = False
        (&self.unmapped.at(<size_t>block.arena))[0][block.address] = number
        return 0

    cdef int _remove_unmapped(self, int32_t number) except -1 nogil:
        cdef Block *block = self._of(number)
        (&self.unmapped.at(<size_t>block.arena)).erase(block.address)
        return 0

    cdef int _is_idle(self, int32_t number) except -1 nogil:
        return number >= 0 and self._of(number).idle

    cdef int64_t _growable(self, int32_t number) except? -1 nogil:
        cdef Block *block = self._of(number)
        if block.next < 0 or self._of(block.next).mapped:
            return block.size
        return block.size + self._of(block.next).size

    # The heap's own steps

    cdef int32_t _take(self, int32_t arena, int64_t size) except -2 nogil:
        cdef Idle *idle = &self.idle.at(<size_t>arena)
        cdef Idle.iterator at, after
        cdef int32_t number
        cdef int64_t have
        if self.gc_threshold:
            (&self.searches.at(<size_t>self.arena_pool.at(<size_t>arena)))[0] += 1
        at = idle.lower_bound(Fit(size, LOWEST, -1))
        if at == idle.end():
            return -1
        number = dereference(at).block
        if self._of(number).region >= 0:
            if not self.expandable:
                while at != idle.end() and self._of(dereference(at).block).region >= 0:
                    preincrement(at)
                if at == idle.end():
                    return -1
            else:
                after = at
                preincrement(after)
                while (
                    after != idle.end()
                    and self._of(dereference(at).block).region >= 0
                    and self._growable(dereference(after).block) < self._growable(dereference(at).block)
                ):
                    at = after
                    preincrement(after)
            number = dereference(at).block
        have = self._of(number).size
        if size < self.max_split:
            if have >= self.max_split:
                return -1
        elif have >= size + self.max_waste:
            return -1
        idle.erase(at)
        self._of(number).idle = False
        return number

    cdef int _carve(self, int32_t number, int64_t size) except -1 nogil:
        cdef Block *block = self._of(number)
        cdef int64_t rest = block.size - size
        cdef int32_t remainder
        if self.expandable or self.pool_small.at(<size_t>self.arena_pool.at(<size_t>block.arena)):
            if rest < MIN_BLOCK:
                return 0
        elif rest <= SMALL_REQUEST or size >= self.max_split:
            return 0
        remainder = self._new(block.address + size, rest, block.arena, block.region)
        block.size = size
        self._link(number, remainder)
        return self._add(remainder)

    cdef int _release(self, int32_t number) except -1 nogil:
        cdef Block *block = self._of(number)
        cdef int32_t prev = block.prev, after
        if self._is_idle(prev):
            self._remove(prev)
            self._of(prev).size += block.size
            self._unlink(number)
            number = prev
            block = self._of(number)
        after = block.next
        if self._is_idle(after):
            self._remove(after)
            block.size += self._of(after).size
            self._unlink(after)
        return self._add(number)

    cdef int64_t _segment_size(self, int64_t size) noexcept nogil:
        if size <= SMALL_REQUEST:
            return SMALL_SEGMENT
        if size < OWN_SEGMENT:
            return self.large_segment
        return (size + SEGMENT_STEP - 1) // SEGMENT_STEP * SEGMENT_STEP

    cdef int32_t _obtain(self, int32_t arena, int64_t size) except -2 nogil:
        cdef int32_t number
        if self.gc_threshold > 0 and self.fraction < UNLIMITED:
            self._collect_garbage()
        number = self._grow(arena, size)
        if number >= 0:
            return number
        if self.rejects_early and self.reserved + self._segment_size(size) > self.fraction:
            return -1
        if self.max_split < UNLIMITED and self._release_oversize(arena, size):
            number = self._grow(arena, size)
            if number >= 0:
                return number
        if not self.pool_reclaims.at(<size_t>self.arena_pool.at(<size_t>arena)):
            return -1
        self._flush()
        self.retries += 1
        return self._grow(arena, size)

    cdef int32_t _grow(self, int32_t arena, int64_t size) except -2 nogil:
        cdef int64_t segment = self._segment_size(size), address
        cdef int32_t number
        if self.reserved + segment > self.fraction:
            return -1
        if self.expandable:
            return self._grow_region(arena, size)
        if self.reserved + segment > self.capacity:
            return -1
        with gil:
            address = self.driver.segment_alloc(segment)
        self._count_growth(segment)
        number = self._new(address, segment, arena, -1)
        self.segments[address] = number
        return number

    cdef int _count_growth(self, int64_t size) except -1 nogil:
        self.allocs += 1
        self.reserved += size
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return 0

    cdef int _count_shrinkage(self, int64_t size) except -1 nogil:
        self.frees += 1
        self.reserved -= size
        return 0

    cdef int _is_whole(self, int32_t number) except -1 nogil:
        cdef Block *block = self._of(number)
        return block.prev < 0 and block.next < 0

    cdef int _free_segment(self, int32_t number) except -1 nogil:
        cdef Block *block = self._of(number)
        cdef int64_t address = block.address, size = block.size
        self._remove(number)
        self.segments.erase(address)
        self._count_shrinkage(size)
        self._drop(number)
        with gil:
            self.driver.segment_free(address, size)
        return 0

    cdef int _flush(self) except -1 nogil:
        cdef cmap[int64_t, int32_t].iterator at = self.pending.begin()
        cdef size_t i
        while at != self.pending.end():
            self._release(dereference(at).second)
            preincrement(at)
        self.pending.clear()
        self.waiting.clear()
        self._flush_pool(0)
        self._flush_pool(1)
        for i in range(self.freeable.size()):
            self._flush_pool(self.freeable.at(i) + 1)
            self._flush_pool(self.freeable.at(i))
        return 0

    cdef int _flush_private(self, int32_t pool) except -1 nogil:
        cdef size_t i
        cdef cbool known = False
        for i in range(self.freeable.size()):
            known = known or self.freeable.at(i) == pool
        if not known:
            self.freeable.push_back(pool)
        self._flush_pool(pool + 1)
        return self._flush_pool(pool)

    cdef int _flush_pool(self, int32_t pool) except -1 nogil:
        cdef vector[int32_t] ranges, whole
        cdef vector[int32_t] *arenas = &self.pool_arenas.at(<size_t>pool)
        cdef Idle *idle
        cdef Idle.iterator at
        cdef int32_t number
        cdef size_t i
        for i in range(arenas.size()):
            idle = &self.idle.at(<size_t>arenas.at(i))
            at = idle.begin()
            while at != idle.end():
                number = dereference(at).block
                if self._of(number).region >= 0:
                    ranges.push_back(number)
                elif self._is_whole(number):
                    whole.push_back(number)
                preincrement(at)
        for i in range(whole.size()):
            self._free_segment(whole.at(i))
        for i in range(ranges.size()):
            self._unmap(ranges.at(i))
        return 0

    cdef int _release_oversize(self, int32_t arena, int64_t size) except -1 nogil:
        cdef int64_t wanted = max(size, self.max_split), freed = 0
        cdef Idle *idle = &self.idle.at(<size_t>arena)
        cdef Idle.iterator at = idle.lower_bound(Fit(wanted, LOWEST, -1))
        cdef vector[int32_t] whole
        cdef int32_t number
        cdef size_t i
        if at != idle.end() and self._of(dereference(at).block).region < 0:
            number = dereference(at).block
            if self._is_whole(number):
                self._free_segment(number)
                return True
            return False
        while at != idle.begin():
            predecrement(at)
            number = dereference(at).block
            if freed >= wanted or self._of(number).size < self.max_split:
                break
            if self._of(number).region < 0 and self._is_whole(number):
                freed += self._of(number).size
                whole.push_back(number)
        for i in range(whole.size()):
            self._free_segment(whole.at(i))
        return freed >= wanted

    cdef int _collect_garbage(self) except -1 nogil:
        cdef int64_t excess = self.reserved - <int64_t>(self.gc_threshold * <double>self.fraction)
        cdef int64_t now, total_age = 0, count, freed = 0, age
        cdef vector[int32_t] candidates, kept
        cdef vector[int32_t] *arenas = &self.pool_arenas.at(0)
        cdef Idle *idle
        cdef Idle.iterator at
        cdef double average
        cdef cbool progress = True
        cdef size_t i
        if excess <= 0:
            return 0
        now = self.searches.at(0)
        for i in range(arenas.size()):
            idle = &self.idle.at(<size_t>arenas.at(i))
            at = idle.begin()
            while at != idle.end():
                if self._is_whole(dereference(at).block):
                    candidates.push_back(dereference(at).block)
                    total_age += now - self._of(dereference(at).block).born
                preincrement(at)
        count = <int64_t>candidates.size()
        while freed < excess and progress and count > 0:
            average = <double>total_age / <double>count
            progress = False
            kept.clear()
            for i in range(candidates.size()):
                age = now - self._of(candidates.at(i)).born
                if age >= average and self._of(candidates.at(i)).region < 0:
                    progress = True
                    freed += self._of(candidates.at(i)).size
                    total_age -= age
                    count -= 1
                    self._free_segment(candidates.at(i))
                else:
                    kept.push_back(candidates.at(i))
            candidates.swap(kept)
        return 0

    # Expandable segments

    cdef int32_t _grow_region(self, int32_t arena, int64_t size) except -2 nogil:
        cdef int32_t number, beyond
        if size > REGION_SIZE:
            return -1
        number = self._start(arena, size)
        if not self._of(number).mapped:
            number = self._map(number, min(self._of(number).size, size))
            if number < 0:
                return -1
        while self._of(number).size < size:
            beyond = self._of(number).next
            number = self._map(beyond, min(size - self._of(number).size, self._of(beyond).size))
            if number < 0:
                return -1
        self._remove(number)
        return number

    cdef int32_t _start(self, int32_t arena, int64_t size) except -2 nogil:
        cdef cmap[int64_t, int32_t] *unmapped = &self.unmapped.at(<size_t>arena)
        cdef cmap[int64_t, int32_t].iterator at = unmapped.begin()
        cdef int64_t reach, granule, base
        cdef int32_t start, number, after
        cdef Region region
        while at != unmapped.end():
            start = dereference(at).second
            if self._is_idle(self._of(start).prev):
                start = self._of(start).prev
            reach = 0
            number = start
            while reach < size:
                reach += self._of(number).size
                after = self._of(number).next
                if after < 0 or (self._of(after).mapped and not self._of(after).idle):
                    break
                number = after
            if reach >= size:
                return start
            preincrement(at)
        granule = self.large_segment
        if self.pool_small.at(<size_t>self.arena_pool.at(<size_t>arena)):
            granule = SMALL_SEGMENT
        with gil:
            base = self.driver.reserve(granule)
        while self._is_taken(arena, base):
            base += REGION_SIZE
        number = self._new(base, REGION_SIZE, arena, <int32_t>self.regions.size())
        region.base, region.granule, region.first = base, granule, number
        self.regions.push_back(region)
        self._add_unmapped(number)
        return number

    cdef int _is_taken(self, int32_t arena, int64_t base) except -1 nogil:
        cdef size_t i
        cdef Region region
        for i in range(self.regions.size()):
            region = self.regions.at(i)
            if region.first >= 0 and self._of(region.first).arena == arena:
                if -REGION_SIZE < base - region.base and base - region.base < REGION_SIZE:
                    return True
        return False

    cdef int32_t _map(self, int32_t number, int64_t size) except -2 nogil:
        cdef Block *block = self._of(number)
        cdef int64_t granule = (&self.regions.at(<size_t>block.region)).granule, address
        cdef int32_t rest
        size = min((size + granule - 1) // granule * granule, block.size)
        if self.reserved + size > self.capacity:
            return -1
        self._remove_unmapped(number)
        if size < block.size:
            rest = self._new(block.address + size, block.size - size, block.arena, block.region)
            block.size = size
            self._link(number, rest)
            self._add_unmapped(rest)
        block.mapped = True
        address = block.address
        with gil:
            self.driver.segment_map(address, size)
        self._count_growth(size)
        return self._settle(number)

    cdef int32_t _settle(self, int32_t number) except -2 nogil:
        cdef Block *block = self._of(number)
        cdef int32_t below = block.prev, above
        if self._is_idle(below):
            self._remove(below)
            self._of(below).size += block.size
            self._unlink(number)
            number = below
            block = self._of(number)
        above = block.next
        if self._is_idle(above):
            self._remove(above)
            block.size += self._of(above).size
            self._unlink(above)
        self._add(number)
        return number

    cdef int _unmap(self, int32_t number) except -1 nogil:
        cdef Block *block = self._of(number)
        cdef Region *region = &self.regions.at(<size_t>block.region)
        cdef int64_t base = region.base, granule = region.granule
        cdef int64_t start = base + (block.address - base + granule - 1) // granule * granule
        cdef int64_t end = base + (block.address + block.size - base) // granule * granule
        cdef int64_t before, after, address, size
        cdef int32_t tail, gap
        if end <= start:
            return 0
        self._remove(number)
        before = start - block.address
        after = block.address + block.size - end
        if after:
            tail = self._new(end, after, block.arena, block.region)
            self._link(number, tail)
            self._add(tail)
        if before:
            gap = self._new(start, end - start, block.arena, block.region)
            self._link(number, gap)
            block.size = before
            self._add(number)
            number = gap
            block = self._of(number)
        else:
            block.size = end - start
        address, size = block.address, block.size
        self._count_shrinkage(size)
        with gil:
            self.driver.segment_unmap(address, size)
        block.mapped = False
        return self._join_unmapped(number)

    cdef int _join_unmapped(self, int32_t number) except -1 nogil:
        cdef Block *block = self._of(number)
        cdef int32_t below = block.prev, above
        if below >= 0 and not self._of(below).mapped:
            self._remove_unmapped(below)
            self._of(below).size += block.size
            self._unlink(number)
            number = below
            block = self._of(number)
        above = block.next
        if above >= 0 and not self._of(above).mapped:
            self._remove_unmapped(above)
            block.size += self._of(above).size
            self._unlink(above)
        if self._is_whole(number):
            (&self.regions.at(<size_t>block.region)).first = -1
            return self._drop(number)
        return self._add_unmapped(number)
