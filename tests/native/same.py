"""Whether two results are the same to the last number and type."""

from __future__ import annotations

import dataclasses

import numpy as np

from oomctl.allocator.blocks import Block
from oomctl.allocator.replay import Outcome

NUMBERS = (
    "peak_reserved", "peak_allocated", "failed_at", "served", "rescued", "retries", "allocs", "frees", "curve_event",
    "curve_reserved", "placed", "exact",
)  # fmt: skip


def assert_same(left: object, right: object, where: str = "") -> None:
    """Compares dataclasses, tuples and arrays part by part; numbers of stacks, pools and texts included."""
    assert type(left) is type(right), where
    if dataclasses.is_dataclass(left):
        for field in dataclasses.fields(left):
            if field.compare:
                assert_same(getattr(left, field.name), getattr(right, field.name), f"{where}.{field.name}")
    elif isinstance(left, np.ndarray):
        assert (left.dtype, left.shape) == (right.dtype, right.shape), where
        assert np.array_equal(left, right), where
    elif type(left) is tuple:
        assert len(left) == len(right), where
        for i, (one, other) in enumerate(zip(left, right, strict=True)):
            assert_same(one, other, f"{where}[{i}]")
    else:
        assert left == right, where


def state(outcome: Outcome) -> dict[str, object]:
    """All that a replay leaves behind."""
    heap, mismatch = outcome.heap, outcome.mismatch

    def chain(block: Block | None) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = []
        while block is not None:
            found.append((block.address, block.size, block.idle, block.mapped, block.born))
            block = block.next
        return found

    where = None if mismatch is None or mismatch.placed is None else mismatch.placed.address
    return {
        **{name: getattr(outcome, name) for name in NUMBERS},
        "mismatch": mismatch and (mismatch.row, mismatch.size, mismatch.recorded, where),
        "segments": {address: chain(first) for address, first in heap.segments.items()},
        "regions": [(r.base, r.granule, chain(r.first)) for r in heap.regions],
        "idle": {(a.pool.id, a.pool.is_small, a.stream): [i[:2] for i in a.idle] for a in heap.arenas()},
        "unmapped": {(a.pool.id, a.pool.is_small, a.stream): [u[0] for u in a.unmapped] for a in heap.arenas()},
        "searches": {(a.pool.id, a.pool.is_small): a.pool.searches for a in heap.arenas()},
        "pending": [(life, block.address) for life, block in heap.pending.items()],
        "live": {life: (block.address, block.size) for life, block in outcome.live.items()},
        "freeable": list(heap.freeable),
        "reserved": heap.reserved,
        "matched": getattr(heap.driver, "matched", None),
    }
