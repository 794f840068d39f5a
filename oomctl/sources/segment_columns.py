"""Segments and their blocks (dicts) into the columns of `Segments` and `Blocks`."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from oomctl.model.common import Skipped
from oomctl.model.snapshot import DEFAULT_POOL, Blocks, BlockState, Segments
from oomctl.sources.interning import Codes, StackInterner
from oomctl.sources.trace_columns import MAX_SIZE, WORD, pool_of
from oomctl.units import format_size

SEGMENT_KEYS: Final = frozenset(
    (
        "device", "address", "total_size", "stream", "segment_type", "allocated_size", "active_size",
        "requested_size", "segment_pool_id", "is_expandable", "frames", "blocks",
    )
)  # fmt: skip
BLOCK_KEYS: Final = frozenset(
    ("size", "state", "history", "requested_size", "frames", "address", "forward_frames", "category")
)
_STATES: Final = {
    "active_allocated": int(BlockState.ACTIVE_ALLOCATED),
    "active_pending_free": int(BlockState.ACTIVE_PENDING_FREE),
    "active_awaiting_free": int(BlockState.ACTIVE_PENDING_FREE),  # torch's documentation says so, its code does not
    "inactive": int(BlockState.INACTIVE),
}
_Row = tuple[int, int, int, int, Any]
"""Address, size, requested, state and frames list of a block."""


MAX_DEVICES: Final = 120
"""Devices that a torch can have at most (C10_COMPILE_TIME_MAX_GPUS, c10/cuda/CUDAMacros.h)."""


@dataclass(slots=True)
class SegmentReader:
    """Reads segments of any device.

    Attributes:
        stacks: Shared by the whole snapshot.
        segment_keys: Keys that any segment had.
        block_keys: Keys that any block had.
        unreadable: Segments that were left out because something in them is none of what torch writes.
        unreadable_bytes: Their size, as far as it could be read.
    """

    stacks: StackInterner
    segment_keys: set[str] = field(default_factory=set)
    block_keys: set[str] = field(default_factory=set)
    unreadable: int = 0
    unreadable_bytes: int = 0

    def device_of(self, segment: Any) -> int | None:
        """The device ordinal; None where the segment cannot be read (it is then counted)."""
        try:
            return _number(segment["device"], MAX_DEVICES)
        except (KeyError, TypeError, ValueError):
            self._leave_out(segment)
            return None

    def _leave_out(self, segment: Any) -> None:
        self.unreadable += 1
        size = segment.get("total_size") if type(segment) is dict else None
        if type(size) is int and 0 <= size < MAX_SIZE:
            self.unreadable_bytes += size

    def read(self, segments: list[dict[str, Any]], pools: Codes) -> tuple[Segments, Blocks]:
        """The columns of one device's segments.

        Args:
            segments: In any order.
            pools: Numbers of the device's pools.
        """
        found = []
        for segment in segments:
            try:
                found.append(self._segment(segment))
            except (KeyError, TypeError, ValueError, IndexError, AttributeError):
                self._leave_out(segment)
        found.sort(key=lambda pair: pair[0][0])
        rows = [row for row, _ in found]
        blocks = [block for _, part in found for block in part]
        first = np.zeros(len(found) + 1, np.int64)
        np.cumsum([len(part) for _, part in found], out=first[1:])
        address, size, stream, pool, large, expandable, frames = zip(*rows, strict=True) if rows else ((),) * 7
        start, length, requested, state, owner = zip(*blocks, strict=True) if blocks else ((),) * 5
        return (
            Segments(
                address=_unsigned(address),
                size=np.array(size, np.int64),
                stream=_unsigned(stream),
                pool=pools.column(pool, len(rows)),
                is_large=np.array(large, np.bool_),
                is_expandable=np.array(expandable, np.bool_),
                stack=self.stacks.column(list(frames)),
                first_block=first,
            ),
            Blocks(
                address=_unsigned(start),
                size=np.array(length, np.int64),
                requested=np.array(requested, np.int64),
                state=np.array(state, np.uint8),
                stack=self.stacks.column(list(owner)),
            ),
        )

    def _segment(self, segment: dict[str, Any]) -> tuple[tuple[Any, ...], list[_Row]]:
        address = _word(segment["address"])
        row = (
            address,
            _number(segment["total_size"], MAX_SIZE),
            _word(segment["stream"]),
            pool_of(segment.get("segment_pool_id", DEFAULT_POOL)),
            _is_large(segment["segment_type"]),
            segment.get("is_expandable", False) is True,
            segment.get("frames"),
        )
        blocks = []
        at = address
        for block in segment["blocks"]:
            start = _word(block["address"]) if "address" in block else at  # torch < 2.1 does not record it
            size = _number(block["size"], MAX_SIZE)
            state = _STATES[block["state"]]
            requested, frames = 0, None
            if state != BlockState.INACTIVE:
                requested, frames = _occupant(block, size)
                frames = self.stacks.joined(frames, block.get("forward_frames"))
            blocks.append((start, size, requested, state, frames))
            at = start + size
            self.block_keys.update(block)
        self.segment_keys.update(segment)
        return row, blocks

    def skipped(self) -> list[Skipped]:
        """What could not be read."""
        if not self.unreadable:
            return []
        size = f", at least {format_size(self.unreadable_bytes)}" if self.unreadable_bytes else ""
        return [Skipped("segments", f"{self.unreadable} of them are damaged and left out{size}")]


def _occupant(block: dict[str, Any], size: int) -> tuple[int, Any]:
    """Requested bytes and frames list of an active block; torch 1.13 and 2.0 keep both in `history`."""
    history = block.get("history")
    latest = history[0] if type(history) is list and history else {}
    requested = block.get("requested_size", latest.get("real_size", size))
    return _number(requested, MAX_SIZE), latest.get("frames") if latest else block.get("frames")


def _number(value: Any, limit: int) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError("no number in range")
    return value


def _word(value: Any) -> int:
    """An address or stream handle; a negative one is a 64-bit number that was read as signed."""
    if type(value) is not int or not -(WORD >> 1) <= value < WORD:
        raise ValueError("no 64-bit number")
    return value % WORD


def _is_large(value: Any) -> bool:
    if value not in ("large", "small"):
        raise ValueError("no segment type")
    return bool(value == "large")


def _unsigned(values: Any) -> Any:
    return np.array(array("Q", values), np.uint64)
