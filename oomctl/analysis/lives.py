"""Lifetimes of blocks: each allocation of the trace, or block from before it, with its birth and death."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from oomctl import _native
from oomctl.model.coding import paired
from oomctl.model.snapshot import Action, BlockState, DeviceSnapshot, Trace
from oomctl.model.stacks import NO_STACK

BEFORE: Final = -1
"""Birth of a block that was allocated before the first recorded event."""

MIN_BLOCK: Final = 512
"""Granularity of the caching allocator's rounding (kMinBlockSize, CUDACachingAllocator.cpp)."""


@dataclass(frozen=True, slots=True, eq=False)
class Lives:
    """One row a block, in order of birth (blocks from before the trace first).

    Attributes:
        address: uint64[n].
        requested: int64[n], bytes that the program asked for.
        size: int64[n], bytes of the block; the rounded request where the true size was not recorded.
        born: int64[n], event index of the alloc, or `BEFORE`.
        asked: int64[n], event index of free_requested; the trace's length while the program held it.
        died: int64[n], event index of free_completed; the trace's length while it was active at the end.
        stack: int32[n], where it was allocated, or `NO_STACK`.
        stream: uint64[n].
        pool: int32[n], index into the device's pools, -1 unknown.
        events: Length of the trace.
        strays: Frees that no block explains, and allocations on top of a live block (0 in a consistent trace).
    """

    address: NDArray[np.uint64]
    requested: NDArray[np.int64]
    size: NDArray[np.int64]
    born: NDArray[np.int64]
    asked: NDArray[np.int64]
    died: NDArray[np.int64]
    stack: NDArray[np.int32]
    stream: NDArray[np.uint64]
    pool: NDArray[np.int32]
    events: int
    strays: int

    def __len__(self) -> int:
        return len(self.address)

    def alive(self, event: int) -> NDArray[np.bool_]:
        """bool[n]: active after the given event (pending frees included)."""
        return (self.born <= event) & (self.died > event)


def round_size(requested: NDArray[np.int64], divisions: tuple[int, ...]) -> NDArray[np.int64]:
    """Block sizes for requests: multiples of 512, or the next power-of-two division (`round_size`, torch >= 2.0).

    Args:
        requested: int64[n], bytes.
        divisions: Sixteen divisions for sizes of 1, 2, 4 ... 32768 MiB; 0 and 1 mean none.

    Returns:
        int64[n], bytes.
    """
    plain = np.maximum((requested + MIN_BLOCK - 1) // MIN_BLOCK * MIN_BLOCK, MIN_BLOCK)
    if max(divisions, default=0) <= 1 or not len(requested):
        return plain
    exponent = np.frexp(np.maximum(requested, 1).astype(np.float64))[1].astype(np.int64) - 1
    table = np.array(divisions, np.int64)
    d = table[np.clip(exponent - 20, 0, len(divisions) - 1)]
    floor = np.int64(1) << exponent
    unit = np.maximum(floor // np.maximum(d, 1), 1)
    rounded = np.where(requested == floor, requested, (requested + unit - 1) // unit * unit)
    return np.where((d > 1) & (requested > MIN_BLOCK * d), rounded, plain)


def lives(device: DeviceSnapshot, divisions: tuple[int, ...] = ()) -> Lives:
    """Pairs allocations with frees by address and adds the blocks from before the trace.

    Args:
        device: Segments, blocks and trace of one device.
        divisions: roundup_power2_divisions in force when it was recorded.
    """
    blocks = device.blocks
    active = blocks.state != BlockState.INACTIVE
    segment_of = np.repeat(np.arange(len(device.segments)), np.diff(device.segments.first_block))
    final = {
        "address": blocks.address[active],
        "size": blocks.size[active],
        "requested": blocks.requested[active],
        "stack": blocks.stack[active],
        "stream": device.segments.stream[segment_of[active]],
        "pool": device.segments.pool[segment_of[active]],
        "state": blocks.state[active],
    }
    if device.trace is None:
        n = len(final["address"])
        never = np.zeros(n, np.int64)
        return Lives(
            final["address"],
            final["requested"],
            final["size"],
            never - 1,
            np.where(final["state"] == BlockState.ACTIVE_PENDING_FREE, -1, never),
            never,
            final["stack"],
            final["stream"],
            final["pool"],
            0,
            0,
        )
    return _join(device.trace, _pair(device.trace), final, divisions)


def _pair(trace: Trace) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], int]:
    """(birth, request to free, death) event indices of each block that the trace touches, and the strays.

    Rows are sorted by address and time; within an address a block is at most one alloc, one free_requested and one
    free_completed, in that order.
    """
    n = len(trace)
    # A block begins at an alloc, and after a free_completed; a block from before the trace has no alloc. A trace may
    # lack free_requested or free_completed altogether (skip_actions, torch 2.11+).
    has_completed = bool((trace.action == Action.FREE_COMPLETED).any())
    end = Action.FREE_COMPLETED if has_completed else Action.FREE_REQUESTED
    pairs = _native.function("order", "pairs", paired)
    (born, _, asked, died), follows = pairs(trace.action, trace.address, trace.by_address(), end)
    born[trace.action[born] != Action.ALLOC] = BEFORE
    asked[asked < 0] = n
    if has_completed:
        died[died < 0] = n
        np.minimum(asked, died, out=asked)
    else:
        died = asked.copy()
    # An alloc on an address that is still held: the older block's end was lost.
    strays = 0
    if len(born) > 1:
        lost = np.flatnonzero(follows[1:] & (died[:-1] == n))
        strays = len(lost)
        ends = np.maximum(born[lost + 1], 0)
        died[lost] = ends
        asked[lost] = np.minimum(asked[lost], ends)
    return born, asked, died, strays


def _join(
    trace: Trace,
    ends: tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32], int],
    final: dict[str, NDArray[Any]],
    divisions: tuple[int, ...],
) -> Lives:
    """Adds what the final blocks know: true sizes, stacks, and blocks that the trace never touches."""
    *columns, strays = ends
    n = len(trace)
    # In the order of birth from here on: then the columns of the trace are read from front to back.
    by_birth = _by_birth(columns[0], n)
    born, asked, died = (column[by_birth] for column in columns)
    witness = np.where(born >= 0, born, np.minimum(asked, died))
    witness = np.minimum(witness, n - 1)
    address = trace.address[witness]
    requested = trace.size[witness]
    # A free's frames are those of the free when contexts were recorded for all events: no stack for older blocks.
    stack = np.where(born >= 0, trace.stack[witness], NO_STACK).astype(np.int32)
    pool = trace.pool[witness] if trace.pool is not None else np.full(len(witness), -1, np.int32)
    size = round_size(requested, divisions)

    final_address = final["address"].astype(np.uint64)
    order = np.argsort(final_address, kind="stable")
    at_end = np.flatnonzero(died == n)
    touched = np.zeros(len(final_address), bool)
    if len(order) and len(at_end):
        place = np.searchsorted(final_address[order], address[at_end])
        place = np.minimum(place, len(order) - 1)
        match = order[place]
        known = final_address[match] == address[at_end]
        size[at_end[known]] = final["size"][match[known]]
        pool[at_end[known]] = final["pool"][match[known]]
        touched[match[known]] = True
        strays += int((~known).sum())
    old = np.flatnonzero(~touched)
    pending = final["state"][old] == BlockState.ACTIVE_PENDING_FREE
    return Lives(
        address=np.concatenate([final_address[old], address]),
        requested=np.concatenate([final["requested"][old], requested]).astype(np.int64, copy=False),
        size=np.concatenate([final["size"][old], size]).astype(np.int64, copy=False),
        born=np.concatenate([np.full(len(old), BEFORE, np.int64), born]),
        asked=np.concatenate([np.where(pending, np.int64(BEFORE), np.int64(n)), asked]),
        died=np.concatenate([np.full(len(old), n, np.int64), died]),
        stack=np.concatenate([final["stack"][old], stack]).astype(np.int32, copy=False),
        stream=_streams(final["stream"][old], trace.stream, witness),
        pool=np.concatenate([final["pool"][old], pool]).astype(np.int32, copy=False),
        events=n,
        strays=strays,
    )


def _streams(old: NDArray[np.uint64], stream: NDArray[np.uint64], witness: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Streams of old blocks and of those that events tell of; where there is one, a column without memory."""
    if stream.strides == (0,) and len(stream) and bool((old == stream[0]).all()):
        return np.broadcast_to(stream[0], len(old) + len(witness))
    return np.concatenate([old, stream[witness]]).astype(np.uint64, copy=False)


def _by_birth(born: NDArray[np.int32], events: int) -> NDArray[np.int32]:
    """Rows in the order of birth; those from before the trace first, as they come. No event makes two blocks."""
    made = np.flatnonzero(born >= 0).astype(np.int32)
    row_of = np.full(events, -1, np.int32)
    row_of[born[made]] = made
    return np.concatenate([np.flatnonzero(born < 0).astype(np.int32), row_of[row_of >= 0]])
