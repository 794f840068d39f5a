"""Ways to put the blocks from before a trace into a heap.

Complete traces need none of this. For the others no way is right for every setting: where the old blocks lay is only
known for the recorded setting, and under another one it is invented.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby

import numpy as np

from oomctl.allocator.blocks import Arena, Block, Region, link
from oomctl.allocator.expandable import REGION_SIZE
from oomctl.allocator.heap import Heap
from oomctl.allocator.policy import MIN_BLOCK, SMALL_REQUEST, UNLIMITED
from oomctl.allocator.start import OldBlock, OldSegment, Owner, Start

SEEDINGS = ("pinned", "packed", "hybrid")
"""pinned: where they were. packed: allocated anew in address order. hybrid: segments below max_split pinned, the blocks
of larger ones allocated anew."""


def seed(heap: Heap, start: Start, how: str) -> dict[int, Block]:
    """Puts the old blocks into an empty heap, without a limit, and sets the counters back.

    Args:
        heap: Empty.
        start: With sizes (`with_extents`).
        how: One of `SEEDINGS`.

    Returns:
        Blocks in use by life number; those that wait for another stream are in `heap.pending`.
    """
    live: dict[int, Block] = {}
    limits = heap.fraction, heap.capacity
    heap.fraction = heap.capacity = UNLIMITED
    anew = []
    if how == "pinned":
        pinned = list(start.segments)
    elif how == "packed":
        pinned, anew = [], list(start.segments)
    else:
        pinned = [s for s in start.segments if s.size < heap.policy.max_split and not s.expandable]
        anew = [s for s in start.segments if s.size >= heap.policy.max_split or s.expandable]
    _pin(heap, pinned, start.floors, live)
    _pack(heap, anew, live)
    heap.fraction, heap.capacity = limits
    heap.retries = heap.allocs = heap.frees = 0
    heap.peak_reserved = heap.reserved
    heap.pending = {b.key: live.pop(b.key) for s in start.segments for b in s.blocks if b.pending and b.key in live}
    return live


def _pin(heap: Heap, segments: list[OldSegment], floors: Mapping[Owner, int], live: dict[int, Block]) -> None:
    for segment in segments:
        if segment.expandable:
            continue
        arena = heap.arena(segment.pool_id, segment.is_small, segment.stream)
        heap.reserved += segment.size
        heap.segments[segment.address] = _chain(arena, None, segment, None, live)
    ranges = sorted((s for s in segments if s.expandable), key=lambda s: (s.owner, s.address))
    for owner, group in groupby(ranges, key=lambda s: s.owner):
        _pin_region(heap, heap.arena(*owner), list(group), floors.get(owner), live)


def _pin_region(heap: Heap, arena: Arena, ranges: list[OldSegment], floor: int | None, live: dict[int, Block]) -> None:
    """One region from the mapped ranges of an arena, with unmapped space below, between and behind them."""
    lowest = ranges[0].address
    base = min(lowest, floor) if floor is not None and lowest - floor < REGION_SIZE else lowest
    region = Region(base, heap.policy.granule(arena.pool.is_small))
    heap.regions.append(region)
    last: Block | None = None
    if base < lowest:
        last = region.first = Block(base, lowest - base, arena, region)
        arena.add_unmapped(last)
    for segment in ranges:
        if last is not None and last.address + last.size < segment.address:
            last = _unmapped(arena, region, last, segment.address - last.address - last.size)
        first = _chain(arena, region, segment, last, live)
        heap.reserved += segment.size
        if last is None:
            region.first = first
        last = first
        while last.next is not None:
            last = last.next
    assert last is not None  # a group is never empty
    _unmapped(arena, region, last, REGION_SIZE)


def _unmapped(arena: Arena, region: Region, behind: Block, size: int) -> Block:
    block = Block(behind.address + behind.size, size, arena, region)
    link(behind, block)
    arena.add_unmapped(block)
    return block


def _chain(
    arena: Arena, region: Region | None, segment: OldSegment, behind: Block | None, live: dict[int, Block]
) -> Block:
    """Used and idle blocks that tile one segment, linked behind `behind`; returns the first."""
    pieces: list[tuple[int, int, OldBlock | None]] = []
    position, end = segment.address, segment.address + segment.size
    for old in segment.blocks:
        if old.address < position or old.address + old.size > end:
            continue
        if position < old.address:
            pieces.append((position, old.address, None))
        position = old.address + old.size
        pieces.append((old.address, position, old))
    if position < end:
        pieces.append((position, end, None))
    first: Block | None = None
    last = behind
    for low, high, used in pieces:
        merges = used is None and last is not None and last.idle and last.address + last.size == low
        if merges and last is not None:
            # The end of one mapped range and the start of the next are one idle block.
            arena.remove(last)
            last.size += high - low
            arena.add(last)
            first = first or last
            continue
        block = Block(low, high - low, arena, region)
        if last is not None:
            link(last, block)
        if used is None:
            arena.add(block)
        else:
            live[used.key] = block
        first, last = first or block, block
    assert first is not None  # a segment has at least one piece
    return first


def _pack(heap: Heap, segments: list[OldSegment], live: dict[int, Block]) -> None:
    for segment in segments:
        sizes = heap.policy.round(np.array([b.request for b in segment.blocks], np.int64)).tolist()
        for old, size in zip(segment.blocks, sizes, strict=True):
            fitting = max(size, MIN_BLOCK)
            arena = heap.arena(segment.pool_id, fitting <= SMALL_REQUEST, segment.stream)
            block = heap.malloc(arena, fitting)
            if block is not None:
                live[old.key] = block
