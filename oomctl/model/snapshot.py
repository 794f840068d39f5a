"""A memory snapshot as columns: segments, blocks and the trace of one or more devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from oomctl.model.common import Skipped, VersionRange
from oomctl.model.notebook import Shown
from oomctl.model.stacks import StackTable

if TYPE_CHECKING:  # a log is read without numpy, which takes longer to load than the log to read
    import numpy as np
    from numpy.typing import NDArray

PoolId = tuple[int, int]
"""torch's mempool id; (0, 0) is the default pool, (n, 0) a graph capture, (0, n) a handle or MemPool."""

DEFAULT_POOL: PoolId = (0, 0)

REST_OF_FILE: Final = "the rest of the file"
"""What is said to be lost of a damaged snapshot."""

WENT_ON_ALLOCS: Final = 100
"""Allocations after an oom event from which on the program is taken to have gone on."""


class Action(IntEnum):
    """Kinds of trace events under torch's names (`_memory_viz`, CUDACachingAllocator.h `TraceEntry::Action`)."""

    ALLOC = 0
    FREE_REQUESTED = 1
    FREE_COMPLETED = 2
    SEGMENT_ALLOC = 3
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    SEGMENT_UNMAP = 6
    OOM = 7
    SNAPSHOT = 8
    ANNOTATE = 9
    WORKSPACE_SNAPSHOT = 10
    UNKNOWN = 11


class BlockState(IntEnum):
    """State of a block in a snapshot."""

    INACTIVE = 0
    ACTIVE_ALLOCATED = 1
    ACTIVE_PENDING_FREE = 2


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The events of one device in order of time, one row an event.

    Attributes:
        action: uint8[n], values of `Action`.
        address: uint64[n]; start of the block or segment; 0 for an oom event.
        size: int64[n], bytes: the original request for alloc and frees, the rounded request for oom, the
            segment's or range's size for segment events.
        stream: uint64[n], raw stream handle.
        stack: int32[n], index into the snapshot's `StackTable`, or `NO_STACK`.
        time_us: int64[n], microseconds since the epoch, or None before torch 2.2.
        pool: int32[n], index into `DeviceSnapshot.pools`, -1 where the event has no pool id (torch < 2.12);
            None when no event has one.
        context: int32[n], index into `texts` of the compile_context (torch 2.8+), -1 for none; or None.
        metadata: int32[n], index into `texts` of the user_metadata (torch 2.10+), -1 for none; or None.
        texts: What `context` and `metadata` point into.
        device_free: Event index of each oom -> free bytes that cudaMemGetInfo reported then.
        order: What `by_address` returns, once it is known; it follows from the other columns.
    """

    action: NDArray[np.uint8]
    address: NDArray[np.uint64]
    size: NDArray[np.int64]
    stream: NDArray[np.uint64]
    stack: NDArray[np.int32]
    time_us: NDArray[np.int64] | None
    pool: NDArray[np.int32] | None
    context: NDArray[np.int32] | None
    metadata: NDArray[np.int32] | None
    texts: tuple[str, ...]
    device_free: Mapping[int, int]
    order: NDArray[np.int32] | None = field(default=None, init=False, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.action)

    def by_address(self) -> NDArray[np.int32]:
        """int32[m]: events of blocks (alloc, free_requested, free_completed) by address, then in order of time."""
        if self.order is None:
            import numpy as np

            rows = np.flatnonzero(self.action <= Action.FREE_COMPLETED)
            self.remember(rows[np.argsort(self.address[rows], kind="stable")].astype(np.int32))
            assert self.order is not None
        return self.order

    def remember(self, order: NDArray[np.int32]) -> None:
        """Keeps what `by_address` is to return, for whoever knows it already."""
        object.__setattr__(self, "order", order)


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """The segments of one device, ascending by address; for expandable ones each mapped range is one row.

    Attributes:
        address: uint64[n].
        size: int64[n], bytes.
        stream: uint64[n].
        pool: int32[n], index into `DeviceSnapshot.pools`.
        is_large: bool[n], segment_type is "large".
        is_expandable: bool[n].
        stack: int32[n], where the segment was made, or `NO_STACK`.
        first_block: int64[n + 1]; the blocks of segment i are rows ``first_block[i]:first_block[i + 1]``.
    """

    address: NDArray[np.uint64]
    size: NDArray[np.int64]
    stream: NDArray[np.uint64]
    pool: NDArray[np.int32]
    is_large: NDArray[np.bool_]
    is_expandable: NDArray[np.bool_]
    stack: NDArray[np.int32]
    first_block: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """The blocks of one device, grouped by segment and ascending by address.

    Attributes:
        address: uint64[n].
        size: int64[n], bytes.
        requested: int64[n], bytes of the original request; 0 for inactive blocks; the size where torch did
            not record it (before 2.0).
        state: uint8[n], values of `BlockState`.
        stack: int32[n], where the block was allocated, or `NO_STACK`.
    """

    address: NDArray[np.uint64]
    size: NDArray[np.int64]
    requested: NDArray[np.int64]
    state: NDArray[np.uint8]
    stack: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.address)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceSnapshot:
    """What a snapshot holds about one device.

    Attributes:
        index: Device ordinal.
        segments: State after the last event of the trace.
        blocks: Rows that `segments.first_block` points into.
        pools: Pool ids; index 0 is always the default pool.
        trace: The recorded events; None when the file has no trace for this device (or an empty one).
        partial_trace: Events that do not lead to `segments` (the file breaks off in them, or they contradict each
            other): good for a look at what happened, never for rolling back. Then `trace` is None.
    """

    index: int
    segments: Segments
    blocks: Blocks
    pools: tuple[PoolId, ...]
    trace: Trace | None
    partial_trace: Trace | None = None


class Annotation(NamedTuple):
    """Start or end of a record_function scope (torch 2.5+).

    Attributes:
        name: For example "ProfilerStep#3" or "Optimizer.step#AdamW.step".
        stage: "START" or "END".
        device: Device ordinal that was current.
        time_us: Microseconds since the epoch.
    """

    name: str
    stage: str
    device: int
    time_us: int


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """`allocator_settings` of a snapshot (torch 2.3+), as recorded.

    Attributes:
        conf: The settings string last parsed; None when absent.
        values: The other keys with their recorded values (ints, bools, floats, dicts, strings).
    """

    conf: str | None
    values: Mapping[str, object]


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot(Shown):
    """One snapshot file.

    Attributes:
        devices: Devices that hold segments or events, ascending by ordinal.
        stacks: Table that every `stack` column points into.
        settings: Allocator settings, or None before torch 2.3.
        annotations: record_function scopes in order of time.
        torch: Versions that could have written it, from the keys alone.
        backend: "cuda" (also HIP), "xpu" or "npu".
        skipped: What was in the file but could not be read, and why.
        unknown_keys: Dotted names of keys that this version of oomctl does not know, for example "segments[].foo".
    """

    devices: tuple[DeviceSnapshot, ...]
    stacks: StackTable
    settings: AllocatorSettings | None
    annotations: tuple[Annotation, ...]
    torch: VersionRange
    backend: str
    skipped: tuple[Skipped, ...]
    unknown_keys: tuple[str, ...]
