"""What holds at every moment, whatever the program does."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oomctl.allocator.address import CHUNK, Chunks
from oomctl.allocator.heap import Heap
from oomctl.allocator.policy import Policy
from tests.allocator.machine import Machine, chains, random_program

MIB = 1 << 20
CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "max_split_size_mb:32,garbage_collection_threshold:0.6",
    "garbage_collection_threshold:0.5",
    "roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:8",
    "large_segment_size_mb:40",
    "expandable_segments:True,max_split_size_mb:64",
)
LIMITS = (1 << 62, 700 * MIB, 250 * MIB)
slow = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def audit(machine: Machine) -> None:
    """The books close, blocks tile, the ordered sets hold exactly the idle blocks."""
    heap = machine.heap
    mapped, idle, unmapped = 0, set(), set()
    for chain in chains(heap):
        for low, high in pairwise(chain):
            assert low.address + low.size == high.address
            assert low.next is high
            assert high.prev is low
            assert not (low.idle and high.idle), "idle neighbours merge"
            assert low.mapped or high.mapped, "unmapped neighbours merge"
        for block in chain:
            assert block.size > 0
            mapped += block.size * block.mapped
            idle |= {block} if block.idle else set()
            unmapped |= set() if block.mapped else {block}
            if block.region is None and not block.arena.pool.is_small and not machine.policy.expandable:
                assert block.size > MIB, "a rest of 1 MiB or less is not split off"
    assert mapped == heap.reserved <= max(heap.peak_reserved, 0)
    arenas = list(heap.arenas())
    assert {block for arena in arenas for _, _, block in arena.idle} == idle
    assert {block for arena in arenas for _, block in arena.unmapped} == unmapped
    for arena in arenas:
        keys = [(size, address) for size, address, _ in arena.idle]
        assert keys == sorted(keys)
        assert all((b.size, b.address) == (size, address) for size, address, b in arena.idle)
    spans = sorted((c[0].address, sum(b.size for b in c if b.mapped)) for c in chains(heap) if c[0].region is None)
    assert all(a + size <= b for (a, size), (b, _) in pairwise(spans)), "segments do not overlap"


@slow
@given(st.sampled_from(CONFS), st.sampled_from(LIMITS), st.integers(0, 10**6))
def test_books_close_at_every_event(conf: str, limit: int, seed: int) -> None:
    machine = Machine(conf, limit)
    for part in range(12):
        random_program(machine, seed + part, 12, pools=True)
        audit(machine)
        used = [*machine.live.values(), *machine.heap.pending.values()]
        assert not any(block.idle or not block.mapped for block in used)
        spans = sorted((b.address, b.size) for b in used)
        assert all(a + size <= b for (a, size), (b, _) in pairwise(spans)), "no request gets a block in use"
        assert all(b.size >= machine.known[key][0] for key, b in machine.live.items())


@slow
@given(st.sampled_from(CONFS), st.sampled_from(LIMITS), st.integers(0, 10**6))
def test_freeing_all_and_flushing_gives_everything_back(conf: str, limit: int, seed: int) -> None:
    machine = Machine(conf, limit)
    random_program(machine, seed, 120, pools=True)
    for key in list(machine.live):
        machine.free(key)
    machine.heap.flush()
    machine.heap.flush_private((1, 0))
    audit(machine)
    assert machine.heap.reserved == 0
    assert not machine.heap.segments


@pytest.mark.parametrize("limit", [22 * MIB, 100 * MIB])
def test_a_failed_request_changes_no_block_in_use(limit: int) -> None:
    machine = Machine("", limit)
    kept = machine.alloc(3 * MIB)
    assert machine.alloc(limit) is None
    assert kept in machine.live
    assert machine.heap.reserved == 20 * MIB
    audit(machine)


def heap(policy: Policy, fraction: int = 1 << 62) -> Heap:
    return Heap(policy, Chunks(), fraction)


def test_best_fit_takes_the_smallest_then_the_lowest() -> None:
    h = heap(Policy())
    arena = h.arena((0, 0), False, 0)
    blocks = [h.malloc(arena, size * MIB) for size in (40, 20, 20, 30)]
    for block in blocks:
        assert block is not None
        h.release(block)
    again = h.malloc(arena, 20 * MIB)
    assert again is min((blocks[1], blocks[2]), key=lambda b: b.address if b else 0)


def test_an_expandable_request_prefers_a_hole_over_the_tail() -> None:
    h = heap(Policy(expandable=True))
    arena = h.arena((0, 0), False, 0)
    blocks = [h.malloc(arena, 8 * MIB) for _ in range(4)]
    hole, tail = blocks[0], blocks[3]
    assert hole is not None
    assert tail is not None
    h.release(tail)  # 8 MiB and the 8 MiB behind it: smaller than nothing, but it can grow
    h.release(hole)
    assert h.malloc(arena, 6 * MIB) is hole


def test_the_limit_is_tested_against_a_whole_segment() -> None:
    assert heap(Policy(expandable=True), 20 * MIB - 1).malloc(heap(Policy()).arena((0, 0), False, 0), 2 * MIB) is None


def test_nothing_is_reclaimed_while_a_graph_is_captured() -> None:
    h = heap(Policy(), 40 * MIB)
    cached = h.malloc(h.arena((0, 0), False, 0), 30 * MIB)
    assert cached is not None
    h.release(cached)
    assert h.malloc(h.arena((5, 0), False, 1), 20 * MIB) is None
    assert h.malloc(h.arena((0, 0), False, 1), 20 * MIB) is not None
    assert h.retries == 1


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 60)), max_size=80))
def test_addresses_never_overlap(calls: list[tuple[bool, int]]) -> None:
    driver, held = Chunks(), []
    for free, size in calls:
        if free and held:
            address, length = held.pop(size % len(held))
            driver.segment_free(address, length)
        else:
            length = size * 2 * MIB
            held.append((driver.segment_alloc(length), length))
        spans = sorted(held)
        assert all(a + n <= b for (a, n), (b, _) in pairwise(spans))


def test_address_space_is_taken_from_above_in_chunks() -> None:
    driver = Chunks()
    first, second, third = (driver.segment_alloc(n * MIB) for n in (20, 20, 2))
    assert first % CHUNK == second % CHUNK == 0
    assert second == first - CHUNK
    assert third == second + 20 * MIB
