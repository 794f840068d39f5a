"""What the program asked of the allocator, taken out of a trace: the only input that a replay under other rules has.

Blocks are identified by their recorded address *at that time* (`Op.block` numbers lives, not addresses), so a replay
may place them anywhere. Segment events are the allocator's own doing and are no requests; they are kept apart as
`Requests.calls`. Only `empty_cache` calls by the program, which show as segment events, become requests again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oomctl import _native
from oomctl.allocator.address import DriverCall
from oomctl.allocator.policy import SMALL_REQUEST
from oomctl.allocator.start import OldBlock, Owner, Start, start_state
from oomctl.model.coding import coded, paired
from oomctl.model.snapshot import DEFAULT_POOL, Action, BlockState, DeviceSnapshot, PoolId, Trace

_SEGMENT_ACTIONS = (Action.SEGMENT_ALLOC, Action.SEGMENT_FREE, Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)


class Op(IntEnum):
    """Kinds of requests."""

    ALLOC = 0
    FREE = 1
    FREE_REQUESTED = 2
    """Freed by the program while another stream may still use it."""
    FREE_COMPLETED = 3
    """The other stream is done."""
    OOM = 4
    """An allocation that failed in the recording; `size` is its rounded size."""
    EMPTY_CACHE = 5
    RELEASE_POOL = 6
    """A private pool is no longer in use and gives its idle memory back; `group` says which."""


@dataclass(frozen=True, slots=True, eq=False)
class Requests:
    """The requests of one device in order of time, one row each.

    Attributes:
        op: uint8[n], values of `Op`.
        block: int32[n], which life of which block; -1 where none.
        size: int64[n], bytes: the original request; the rounded one for `Op.OOM`; 0 where none.
        group: int32[n], index into `groups`; -1 where it does not matter.
        address: uint64[n], recorded address of an alloc, else 0.
        event: int32[n], trace index.
        groups: Distinct (pool id, stream) pairs.
        start: Segments and blocks that existed before the first event.
        calls: Recorded segment events.
        events: Events in the trace.
        problems: What in the trace a replay cannot follow, in plain words.
    """

    op: NDArray[np.uint8]
    block: NDArray[np.int32]
    size: NDArray[np.int64]
    group: NDArray[np.int32]
    address: NDArray[np.uint64]
    event: NDArray[np.int32]
    groups: tuple[tuple[PoolId, int], ...]
    start: Start
    calls: tuple[DriverCall, ...]
    events: int
    problems: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.op)

    def row_of(self, event: int, side: Literal["left", "right"] = "left") -> int:
        """The first row of an event or a later one; with "right", of a later one."""
        return int(np.searchsorted(self.event, np.int32(event), side))

    @property
    def complete(self) -> bool:
        """Whether the trace starts with an empty allocator."""
        return not self.start.segments


@dataclass
class _Rows:
    """Columns under construction; a request of rank 0 comes before one of rank 1 at the same event."""

    parts: list[tuple[Op, NDArray[np.int32], int, tuple[Any, ...]]] = field(default_factory=list)

    def add(self, op: Op, event: NDArray[Any], block: Any, size: Any, group: Any, address: Any, rank: int) -> None:
        self.parts.append((op, event.astype(np.int32), rank, (block, size, group, address)))

    def sorted(self) -> tuple[NDArray[Any], ...]:
        """Columns op, block, size, group, address and event in order of time."""
        total = sum(len(event) for _, event, _, _ in self.parts)
        places = self._places(total)
        values = [[op, *rest, event] for op, event, _, rest in self.parts]
        self.parts.clear()
        columns = []
        for i, kind in enumerate((np.uint8, np.int32, np.int64, np.int32, np.uint64, np.int32)):
            column = np.zeros(total, kind)
            for place, value in zip(places, values, strict=True):
                column[place] = value[i]
                value[i] = None  # what is written goes at once: a replay needs most memory here
            columns.append(column)
        return tuple(columns)

    def _places(self, total: int) -> list[NDArray[Any]]:
        """Where the rows of each part go."""
        slots = [event * np.int32(2) + np.int32(rank) for _, event, rank, _ in self.parts]
        taken = np.zeros(max((int(slot.max(initial=-1)) for slot in slots), default=-1) + 1, np.bool_)
        for slot in slots:
            taken[slot] = True
        if int(np.count_nonzero(taken)) == total:  # no two share a slot: nearly always
            number = np.cumsum(taken, dtype=np.int32)
            number -= 1
            return [number[slot] for slot in slots]
        place = np.empty(total, np.int64)
        place[np.argsort(np.concatenate(slots), kind="stable")] = np.arange(total)
        return np.split(place, np.cumsum([len(slot) for slot in slots])[:-1])


def read_calls(trace: Trace) -> tuple[DriverCall, ...]:
    """The recorded segment events in order of time."""
    rows = np.flatnonzero(np.isin(trace.action, _SEGMENT_ACTIONS))
    columns = (trace.action[rows], trace.address[rows], trace.size[rows], rows)
    return tuple(DriverCall(*row) for row in zip(*(c.tolist() for c in columns), strict=True))


def read_requests(device: DeviceSnapshot) -> Requests:
    """Requests of one device; `empty_cache` calls are added by `with_empties`.

    Args:
        device: Must have a trace.
    """
    trace = device.trace
    assert trace is not None
    calls = read_calls(trace)
    pools = _pool_of_events(device, trace, calls)
    # (pool, stream) pairs as one code each; stream handles are arbitrary 64-bit values.
    streams, stream_code = coded(trace.stream)
    pairs, group = coded(pools * np.int32(len(streams)) + stream_code)
    groups = tuple((device.pools[p // len(streams)], int(streams[p % len(streams)])) for p in pairs.tolist())
    del pools, stream_code  # long columns go as soon as they can: this is where a replay needs most memory

    rows = _Rows()
    lives = _Lives(trace)
    allocs = lives.first[lives.has_alloc]
    rows.add(
        Op.ALLOC,
        allocs,
        np.flatnonzero(lives.has_alloc).astype(np.int32),
        trace.size[allocs],
        group[allocs],
        trace.address[allocs],
        rank=1,
    )
    # A trace recorded without one kind of free event (skip_actions) still tells when blocks were freed.
    waiting = bool(np.any(device.blocks.state == BlockState.ACTIVE_PENDING_FREE))
    _add_frees(rows, lives, completions_recorded=waiting or bool(np.any(lives.completed >= 0)))
    ooms = np.flatnonzero(trace.action == Action.OOM)
    rows.add(Op.OOM, ooms, -1, trace.size[ooms], _oom_groups(trace, groups, group, ooms), 0, rank=1)
    old = _old_blocks(trace, lives)
    mapped = _mapped(trace, calls, groups, group)
    touched = _touched(device, trace, lives)
    count, problems = len(lives.has_alloc), _problems(trace, lives)
    del lives, allocs, group
    op, block, size, group_column, address_column, event = rows.sorted()
    start = start_state(device, calls, old, mapped, untouched_from=count, touched=touched)
    return Requests(op, block, size, group_column, address_column, event, groups, start, calls, len(trace), problems)


def _old_blocks(trace: Trace, lives: _Lives) -> list[OldBlock]:
    """Blocks from before the trace that it mentions."""
    frees_wait = bool(np.any(trace.action == Action.FREE_REQUESTED))
    number = np.flatnonzero(~lives.has_alloc)
    return [
        OldBlock(
            life,
            int(trace.address[e]),
            int(trace.size[e]),
            pending=frees_wait and bool(trace.action[e] == Action.FREE_COMPLETED),
        )
        for life, e in zip(number.tolist(), lives.first[number].tolist(), strict=True)
    ]


def _touched(device: DeviceSnapshot, trace: Trace, lives: _Lives) -> NDArray[np.bool_]:
    """Which final blocks the trace mentions."""
    mentioned = trace.address[lives.first]  # ascending, as the lives are
    address = device.blocks.address
    if not len(mentioned):
        return np.zeros(len(address), np.bool_)
    at = np.minimum(np.searchsorted(mentioned, address), len(mentioned) - 1)
    found: NDArray[np.bool_] = mentioned[at] == address
    return found


def _mapped(
    trace: Trace, calls: Iterable[DriverCall], groups: Sequence[tuple[PoolId, int]], group: NDArray[np.int32]
) -> list[tuple[int, Owner]]:
    """Address and owner of every range that was mapped: that of the allocation that it was mapped for."""
    allocs = np.flatnonzero(trace.action == Action.ALLOC)
    found = []
    for call in calls:
        if call.action == Action.SEGMENT_MAP:
            i = int(np.searchsorted(allocs, call.event))
            if i < len(allocs):
                pool_id, stream = groups[int(group[allocs[i]])]
                # Rounding never takes a request of 1 MiB, which is a power of two, beyond it.
                found.append((call.address, (pool_id, bool(trace.size[allocs[i]] <= SMALL_REQUEST), stream)))
    return found


class _Lives:
    """Events of blocks paired into lives: one from each alloc (or from the first sight of an address) to its free.

    Attributes:
        has_alloc: bool[lives]; False for blocks from before the trace.
        first: int32[lives], trace index of the life's first event, its alloc where it has one.
        requested: int32[lives], trace index of its free_requested, -1 for none.
        completed: int32[lives], trace index of its free_completed, -1 for none.
        successor: int32[lives], trace index of the next alloc at the same address, -1 for none.
        at_once: bool[lives]; freed without waiting: both events are adjacent and come from the same call.
    """

    def __init__(self, trace: Trace) -> None:
        pairs = _native.function("order", "pairs", paired)
        made, follows = pairs(trace.action, trace.address, trace.by_address(), -1)
        self.first, self.requested, _, self.completed = made
        self.has_alloc: NDArray[np.bool_] = trace.action[self.first] == Action.ALLOC
        self.successor = np.full(len(follows), -1, np.int32)
        self.successor[:-1][follows[1:]] = self.first[1:][follows[1:]]
        # A completion that a later call brought about, such as a flush, carries that call's stack.
        both = (self.requested >= 0) & (self.completed == self.requested + 1)
        self.at_once: NDArray[np.bool_] = both & (trace.stack[self.requested] == trace.stack[self.completed])


def _add_frees(rows: _Rows, lives: _Lives, completions_recorded: bool) -> None:
    """Frees as one request where both events are adjacent, else as two; lost ones where the address is used again."""
    requested, completed, at_once = lives.requested, lives.completed, lives.at_once
    if not completions_recorded:
        completed, at_once = requested, requested >= 0
    has_request, has_completion = requested >= 0, completed >= 0
    early = has_request & has_completion & (completed < requested)
    ends_only = ~has_request & has_completion & (lives.has_alloc | (not np.any(requested >= 0)))
    single = at_once | early | ends_only
    where = np.where(has_request & ~early, requested, completed)
    life = np.arange(len(requested), dtype=np.int32)
    rows.add(Op.FREE, where[single], life[single], 0, -1, 0, rank=1)
    deferred = has_request & ~single
    rows.add(Op.FREE_REQUESTED, requested[deferred], life[deferred], 0, -1, 0, rank=1)
    later = has_completion & ~single
    rows.add(Op.FREE_COMPLETED, completed[later], life[later], 0, -1, 0, rank=1)
    reused = lives.successor >= 0
    lost = reused & ~has_completion
    rows.add(Op.FREE_COMPLETED, lives.successor[lost & has_request], life[lost & has_request], 0, -1, 0, rank=0)
    rows.add(Op.FREE, lives.successor[lost & ~has_request], life[lost & ~has_request], 0, -1, 0, rank=0)


def _pool_of_events(device: DeviceSnapshot, trace: Trace, calls: Iterable[DriverCall]) -> NDArray[np.int32]:
    """Pool index of every event: recorded (torch 2.12+), else that of the final segment around its address.

    A segment's pool holds from the segment's last segment_alloc on (for an expandable range: from the last unmap on);
    what lies in no final segment is taken for the default pool.
    """
    n = len(trace)
    pools: NDArray[np.int32] = np.zeros(n, np.int32)
    segments = device.segments
    if len(device.pools) > 1 and len(segments):
        born = {call.address: call.event for call in calls if call.action == Action.SEGMENT_ALLOC}
        born_at = np.array([born.get(a, -1) for a in segments.address.tolist()], np.int64)
        # A private pool in use is never unmapped: what was unmapped here belonged to another pool before.
        private = np.flatnonzero(segments.is_expandable & (segments.pool > 0))
        starts = segments.address[private].astype(np.float64)
        ends = starts + segments.size[private]
        for call in calls if len(private) else ():
            if call.action == Action.SEGMENT_UNMAP:
                overlapping = (starts < float(call.address + call.size)) & (ends > float(call.address))
                born_at[private[overlapping]] = call.event
        i = np.maximum(np.searchsorted(segments.address, trace.address, "right") - 1, 0)
        inside = (trace.address >= segments.address[i]) & (
            trace.address - segments.address[i] < segments.size[i].astype(np.uint64)
        )
        known = inside & (np.arange(n) >= born_at[i])
        pools = np.where(known, segments.pool[i], 0).astype(np.int32)
    if trace.pool is not None:
        pools[trace.pool >= 0] = trace.pool[trace.pool >= 0]
    return pools


def _oom_groups(
    trace: Trace, groups: tuple[tuple[PoolId, int], ...], group: NDArray[np.int32], ooms: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Groups of failed requests; they have no address, so a capture stream's last allocation tells the pool."""
    found: NDArray[np.int32] = group[ooms].copy()
    unnamed = np.ones(len(ooms), bool) if trace.pool is None else trace.pool[ooms] < 0
    for stream in coded(trace.stream[ooms[unnamed]])[0].tolist():
        if stream == 0:
            continue
        allocs = np.flatnonzero((trace.action == Action.ALLOC) & (trace.stream == stream))
        for i in np.flatnonzero(unnamed & (trace.stream[ooms] == stream)).tolist():
            before = int(np.searchsorted(allocs, ooms[i])) - 1
            if before >= 0 and groups[int(group[allocs[before]])][0] != DEFAULT_POOL:
                found[i] = group[allocs[before]]
    return found


def _problems(trace: Trace, lives: _Lives) -> tuple[str, ...]:
    problems = []
    if not np.any(trace.action == Action.ALLOC):
        problems.append("the trace has no alloc events")
    elif not np.any(trace.action == Action.FREE_REQUESTED) and not np.any(trace.action == Action.FREE_COMPLETED):
        problems.append("the trace has no free events")
    lost = int(np.count_nonzero((lives.successor >= 0) & (lives.completed < 0)))
    if lost and np.any(lives.completed >= 0):
        problems.append(f"{lost:,} blocks were never freed although their address was used again")
    unknown = int(np.count_nonzero(trace.action >= Action.WORKSPACE_SNAPSHOT))
    if unknown:
        problems.append(f"{unknown:,} events of a kind that the model does not know")
    return tuple(problems)
