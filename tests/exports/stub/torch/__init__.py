"""Stands in for torch and a GPU where a reproducer is tested: requests go to the simulated allocator."""

from __future__ import annotations

import contextlib
import os
import sys
import types
from typing import Any

from oomctl.allocator.address import Descending
from oomctl.allocator.heap import Heap
from oomctl.allocator.policy import policy_of
from oomctl.model.alloc_conf import parse_conf

__version__ = "2.11.0"
uint8 = "uint8"
TOTAL = 150_000_000_000
POLICY = policy_of(parse_conf(os.environ.get("PYTORCH_ALLOC_CONF", ""), (2, 11)).conf, (2, 11))
HEAP = Heap(POLICY, Descending())
STATE: dict[str, Any] = {"stream": 0, "pool": (0, 0), "allocated": 0}
ASKED: list[list[Any]] = []
"""[bytes, frames innermost first] of every request."""


class OutOfMemoryError(RuntimeError):
    pass


class Tensor:
    def __init__(self, block: Any) -> None:
        self.block = block
        STATE["allocated"] += block.size

    def __del__(self) -> None:
        STATE["allocated"] -= self.block.size
        HEAP.release(self.block)


def empty(size: int, *, dtype: str, device: str) -> Tensor:
    assert (dtype, device) == ("uint8", "cuda")
    frames, frame = [], sys._getframe(1)
    while frame is not None:
        frames.append([frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name])
        frame = frame.f_back  # type: ignore[assignment]
    ASKED.append([size, frames])
    rounded = POLICY.round_one(size)
    block = HEAP.malloc(HEAP.arena(STATE["pool"], rounded <= 1 << 20, STATE["stream"]), rounded)
    if block is None:
        raise OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
    return Tensor(block)


class _Numbered:
    made = 0

    def __init__(self) -> None:
        type(self).made += 1
        self.number = type(self).made


class Stream(_Numbered):
    pass


class MemPool(_Numbered):
    pass


@contextlib.contextmanager
def _as(key: str, value: Any) -> Any:
    before = STATE[key]
    STATE[key] = value
    try:
        yield
    finally:
        STATE[key] = before


def _dump(path: str) -> None:
    import json

    with open(path, "w", encoding="utf-8") as stream:
        json.dump(ASKED, stream)


def _fraction(fraction: float) -> None:
    HEAP.fraction = int(fraction * TOTAL)


cuda = types.SimpleNamespace(
    init=lambda: None,
    mem_get_info=lambda: (int(os.environ.get("STUB_FREE", TOTAL)), TOTAL),
    set_per_process_memory_fraction=_fraction,
    Stream=Stream,
    stream=lambda stream: _as("stream", 0 if stream is None else stream.number),
    MemPool=MemPool,
    use_mem_pool=lambda pool: _as("pool", (0, pool.number)),
    empty_cache=HEAP.flush,
    memory_allocated=lambda: STATE["allocated"],
    memory_reserved=lambda: HEAP.reserved,
    get_device_name=lambda: "none",
    memory=types.SimpleNamespace(_record_memory_history=lambda **_: None, _dump_snapshot=_dump),
)
