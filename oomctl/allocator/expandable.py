"""Expandable segments: memory is mapped into a growing address range, granule by granule (torch 2.1+).

A region is a chain of blocks like a segment, except that some of its blocks are unmapped: address space without
memory. A request that no idle block fits takes the lowest unmapped space of its stream and pool, together with the
idle block that ends there; a flush unmaps the whole granules inside idle blocks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from oomctl.allocator.blocks import Arena, Block, Region, link, unlink

if TYPE_CHECKING:
    from oomctl.allocator.heap import Heap

REGION_SIZE: Final = 1 << 40
"""Bytes of address space of one region. torch reserves 9/8 of the card, whose size no snapshot names."""


def best_fit(idle: list[tuple[int, int, Block]], i: int, active: bool) -> int:
    """Index of the block to use, where the first fit at index `i` is an expandable one.

    With expandable segments on, a block counts with what it could grow to, so that holes are preferred over the
    tail that borders unmapped space: the search goes on while the next block's growable size is smaller.
    With them off (settings changed at run time), expandable blocks are passed over.

    Returns:
        An index into `idle`; its length where nothing fits.
    """
    last = len(idle) - 1
    if not active:
        while i <= last and idle[i][2].region is not None:
            i += 1
        return i
    while i < last and idle[i][2].region is not None and idle[i + 1][2].growable < idle[i][2].growable:
        i += 1
    return i


def grow(heap: Heap, arena: Arena, size: int) -> Block | None:
    """Maps memory until a block of `size` bytes exists (`try_allocate_expandable_block`).

    Returns:
        The block, not idle; None where the driver has no memory left. What was mapped until then stays idle.
    """
    if size > REGION_SIZE:
        return None
    block = _start(heap, arena, size)
    if not block.mapped:
        mapped = _map(heap, block, min(block.size, size))
        if mapped is None:
            return None
        block = mapped
    while block.size < size:
        beyond = block.next
        assert beyond is not None  # _start has checked that the run is long enough
        mapped = _map(heap, beyond, min(size - block.size, beyond.size))
        if mapped is None:
            return None
        block = mapped
    arena.remove(block)
    return block


def _start(heap: Heap, arena: Arena, size: int) -> Block:
    """The lowest unmapped block whose surroundings can hold the request, or the idle block just below it."""
    for _, unmapped in arena.unmapped:
        below = unmapped.prev
        start = below if below is not None and below.idle else unmapped
        reach, block = 0, start
        while reach < size:
            reach += block.size
            after = block.next
            if after is None or (after.mapped and not after.idle):
                break
            block = after
        if reach >= size:
            return start
    granule = heap.policy.granule(arena.pool.is_small)
    base = heap.driver.reserve(granule)
    while any(abs(base - other.base) < REGION_SIZE for other in heap.regions if other.first.arena is arena):
        base += REGION_SIZE  # only in files that contradict themselves
    region = Region(base, granule)
    heap.regions.append(region)
    block = region.first = Block(region.base, REGION_SIZE, arena, region)
    arena.add_unmapped(block)
    return block


def _map(heap: Heap, block: Block, size: int) -> Block | None:
    """Maps the granules that the first `size` bytes of an unmapped block touch; merges; returns the idle result."""
    region = block.region
    assert region is not None
    granule = region.granule
    size = min(-(-size // granule) * granule, block.size)
    if heap.reserved + size > heap.capacity:
        return None
    arena = block.arena
    arena.remove_unmapped(block)
    if size < block.size:
        rest = Block(block.address + size, block.size - size, arena, region)
        block.size = size
        link(block, rest)
        arena.add_unmapped(rest)
    block.mapped = True
    heap.driver.segment_map(block.address, size)
    heap.count_growth(size)
    return _settle(block)


def _settle(block: Block) -> Block:
    """Merges a mapped, unlisted block with idle neighbours and lists the result as idle."""
    arena = block.arena
    below = block.prev
    if below is not None and below.idle:
        arena.remove(below)
        below.size += block.size
        unlink(block)
        block = below
    above = block.next
    if above is not None and above.idle:
        arena.remove(above)
        block.size += above.size
        unlink(above)
    arena.add(block)
    return block


def unmap(heap: Heap, block: Block) -> None:
    """Unmaps the whole granules inside an idle block; parts of granules at its ends stay idle (`unmap_block`)."""
    region = block.region
    assert region is not None
    base, granule = region.base, region.granule
    start = base + -(-(block.address - base) // granule) * granule
    end = base + (block.address + block.size - base) // granule * granule
    if end <= start:
        return
    arena = block.arena
    arena.remove(block)
    before, after = start - block.address, block.address + block.size - end
    if after:
        tail = Block(end, after, arena, region)
        link(block, tail)
        arena.add(tail)
    if before:
        gap = Block(start, end - start, arena, region)
        link(block, gap)
        block.size = before
        arena.add(block)
        block = gap
    else:
        block.size = end - start
    heap.count_shrinkage(block.size)
    heap.driver.segment_unmap(block.address, block.size)
    block.mapped = False
    if _join_unmapped(block):
        heap.regions.remove(region)


def _join_unmapped(block: Block) -> bool:
    """Merges an unlisted unmapped block with unmapped neighbours and lists the result.

    Returns:
        Whether that is the whole region: its address space is given back, and the next request reserves anew.
    """
    arena = block.arena
    below = block.prev
    if below is not None and not below.mapped:
        arena.remove_unmapped(below)
        below.size += block.size
        unlink(block)
        block = below
    above = block.next
    if above is not None and not above.mapped:
        arena.remove_unmapped(above)
        block.size += above.size
        unlink(above)
    if block.is_whole:
        return True
    arena.add_unmapped(block)
    return False
