"""What the recorded driver calls tell: when the allocator needed memory, when it was refused, when caches were emptied.

A run of segment_free events followed by a segment_alloc looks the same whether the program called `empty_cache` or
the allocator flushed its caches to serve a request. The first is a request to replay, the second is the allocator's
own answer to a limit. The stacks tell them apart; where there are none, what follows and how much was reserved do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oomctl.allocator.address import DriverCall
from oomctl.allocator.policy import Policy
from oomctl.allocator.requests import Op, Requests
from oomctl.model.snapshot import DEFAULT_POOL, Action, PoolId, Trace
from oomctl.model.stacks import NO_STACK, StackTable

_FREES = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


class Attempt(NamedTuple):
    """A recorded request that came down to the driver.

    Attributes:
        event: Trace index of the alloc or oom.
        need: Bytes of the segment that it would take.
        before: Bytes reserved when it first asked.
        after: Bytes reserved when the driver was asked for the last time.
        mapped: Bytes that the driver gave; 0 for an oom.
        refused: Whether the first answer was no, which shows in what was freed for it.
        served: Whether the last answer was yes.
    """

    event: int
    need: int
    before: int
    after: int
    mapped: int
    refused: bool
    served: bool


class Emptied(NamedTuple):
    """The program emptied the caches.

    Attributes:
        event: Trace index of the first segment that went.
        pool_id: The private pool that alone was emptied, or None for all caches.
    """

    event: int
    pool_id: PoolId | None


class Growth(NamedTuple):
    """The recorded driver calls, understood.

    Attributes:
        attempts: In order of time.
        emptied: In order of time.
        peak: Bytes; highest recorded reserved memory.
    """

    attempts: tuple[Attempt, ...]
    emptied: tuple[Emptied, ...]
    peak: int


class _Reader:
    """State of one pass over the driver calls."""

    def __init__(
        self, requests: Requests, trace: Trace, pools: Sequence[PoolId], stacks: StackTable, policy: Policy
    ) -> None:
        self.requests, self.trace, self.pools, self.policy = requests, trace, pools, policy
        asking = (requests.op == Op.ALLOC) | (requests.op == Op.OOM)
        self.rows = np.flatnonzero(asking)
        self.askers = requests.event[self.rows]
        self.emptying = _emptying_stacks(stacks)
        signs = [-c.size if c.action in _FREES else c.size for c in requests.calls]
        self.levels = [requests.start.reserved, *(requests.start.reserved + np.cumsum(signs or [0])).tolist()]
        self.peak = max(self.levels)
        self.granted = 0
        self.attempts: list[Attempt] = []
        self.emptied: list[Emptied] = []

    def read(self) -> Growth:
        calls = self.requests.calls
        owner = np.searchsorted(self.askers, np.array([c.event for c in calls], np.int32)).tolist()
        groups, start = [], 0
        for asker, group in groupby(owner):
            stop = start + sum(1 for _ in group)
            groups.append((asker, start, stop))
            start = stop
        self.granted = max((self._grant(*group) for group in groups), default=0)
        for asker, first, stop in groups:
            self._read_group(asker, first, stop)
        level_at_oom = {}
        for row in np.flatnonzero(self.requests.op == Op.OOM).tolist():
            event = int(self.requests.event[row])
            i = int(np.searchsorted([c.event for c in calls], event)) if calls else 0
            level_at_oom[event] = self.levels[i]
        seen = {a.event for a in self.attempts}
        for event, level in level_at_oom.items():
            if event not in seen:
                self.attempts.append(Attempt(event, self._need(event), level, level, 0, refused=True, served=False))
        self.attempts.sort()
        return Growth(tuple(self.attempts), tuple(self.emptied), self.peak)

    def _need(self, event: int) -> int:
        """Bytes of the segment that the alloc or oom at this event would take."""
        row = int(self.rows[np.searchsorted(self.askers, np.int32(event))])
        size = int(self.requests.size[row])
        return self.policy.segment_size(size if self.requests.op[row] == Op.OOM else self.policy.round_one(size))

    def _grant(self, asker: int, start: int, stop: int) -> int:
        """Bytes that the limit is known to allow from what the driver gave for one request."""
        grown = [k for k in range(start, stop) if self.requests.calls[k].action not in _FREES]
        if not grown or asker >= len(self.askers):
            return 0
        mapped = sum(self.requests.calls[k].size for k in grown)
        # A map may overshoot a fraction's cap: what was tested is the segment size.
        return int(self.levels[grown[0]]) + min(self._need(int(self.askers[asker])), mapped)

    def _read_group(self, asker: int, start: int, stop: int) -> None:
        """Reads the calls [start, stop) between one request and the next, which is number `asker`."""
        calls = self.requests.calls[start:stop]
        event = int(self.askers[asker]) if asker < len(self.askers) else None
        at_once = len(calls) if event is None else self._at_once(calls, event)
        own_from = None
        i = 0
        while i < len(calls):
            if calls[i].action not in _FREES:
                i += 1
                continue
            end = i + 1
            while end < len(calls) and self._continues(calls[end - 1], calls[end]):
                end += 1
            level = self.levels[start + min(i, at_once)]
            if i < at_once or event is None or self._by_program(calls, i, end, event, level):
                self.emptied.append(Emptied(calls[i].event, self._only_pool(calls[i:end])))
            elif own_from is None:
                own_from = start + i
            i = end
        if event is None:
            return
        growth = [start + k for k, call in enumerate(calls) if call.action not in _FREES]
        served = self.requests.op[self.rows[asker]] == Op.ALLOC
        if served and not growth and own_from is None:
            return
        after = self.levels[growth[0] if growth else stop]
        before = after if own_from is None else self.levels[own_from]
        mapped = sum(self.requests.calls[k].size for k in growth)
        refused = own_from is not None or not served
        self.attempts.append(Attempt(event, self._need(event), before, after, mapped, refused, bool(served)))

    def _at_once(self, calls: Sequence[DriverCall], event: int) -> int:
        """The first of the calls from which on nothing but frees that a flush waits for comes before the request.

        What the allocator frees for a request it frees at once; anything in between shows that it was not for this one.
        """
        first = len(calls)
        following = event
        while first > 0:
            between = self.trace.action[calls[first - 1].event + 1 : following]
            if np.any(between != Action.FREE_COMPLETED):
                break
            first -= 1
            following = calls[first].event
        return first

    def _continues(self, left: DriverCall, right: DriverCall) -> bool:
        """Whether a free goes on what another began: at once, by the same call, in the same pool."""
        if right.action not in _FREES or right.event != left.event + 1:
            return False
        same_pool = self.trace.pool is None or self.trace.pool[right.event] == self.trace.pool[left.event]
        return bool(same_pool and self.trace.stack[right.event] == self.trace.stack[left.event])

    def _by_program(self, calls: Sequence[DriverCall], i: int, end: int, event: int, level: int) -> bool:
        """Whether the frees [i, end) just before a request are an empty_cache by the program, not the allocator's own.

        Args:
            calls: All calls since the last request.
            i: First of the frees.
            end: Behind the last of them.
            event: Trace index of the request.
            level: Bytes reserved when it began.
        """
        stack = int(self.trace.stack[calls[i].event])
        if stack in self.emptying:
            return True
        row = int(self.rows[np.searchsorted(self.askers, np.int32(event))])
        failed = self.requests.op[row] == Op.OOM
        same_call = stack != NO_STACK and stack == int(self.trace.stack[event])
        grows = any(call.action not in _FREES for call in calls[end:])
        # After a flush an expandable request may find room at the edge of what was unmapped, and grow by nothing.
        if not failed and not grows and not (same_call and self.policy.expandable):
            return True
        if same_call:
            return False
        pool_id = self.requests.groups[int(self.requests.group[row])][0]
        if pool_id != DEFAULT_POOL and (pool_id[0] != 0 or not self.policy.reclaims_in_mempool):
            return True
        if failed or self.policy.gc_threshold:
            return False
        # More was granted at another time, so no limit can have refused this.
        return bool(level + self._need(event) <= self.granted)

    def _only_pool(self, calls: Sequence[DriverCall]) -> PoolId | None:
        """The private pool that all of these belong to, where events name pools."""
        if self.trace.pool is None:
            return None
        found = {int(self.trace.pool[call.event]) for call in calls}
        code = found.pop()
        return self.pools[code] if not found and code > 0 else None


def read_growth(
    requests: Requests, trace: Trace, pools: Sequence[PoolId], stacks: StackTable, policy: Policy
) -> Growth:
    """Reads the recorded driver calls.

    Args:
        requests: As read from the trace.
        trace: The trace, for its stacks.
        pools: Pool ids of the device.
        stacks: Table of the snapshot.
        policy: Rules of the recorded setting.
    """
    return _Reader(requests, trace, pools, stacks, policy).read()


def with_flushed_frees(requests: Requests, attempts: Sequence[Attempt]) -> Requests:
    """The requests with frees that a refused request waited for moved behind it.

    Before a flush the allocator waits for other streams, which shows as free_completed events just before the request.
    It does not search its caches again after that, so these blocks are not there for the request. (With max_split or
    garbage collection some of them may have been there for the release of whole blocks before; that cannot be seen.)
    """
    if not any(attempt.refused for attempt in attempts):
        return requests
    order = np.arange(len(requests))
    completed = requests.op == Op.FREE_COMPLETED
    asking = (requests.op == Op.ALLOC) | (requests.op == Op.OOM)
    for attempt in attempts:
        if not attempt.refused:
            continue
        row = requests.row_of(attempt.event)
        while not asking[row]:
            row += 1
        first = row
        while first > 0 and completed[first - 1]:
            first -= 1
        if first < row:
            order[first], order[first + 1 : row + 1] = row, np.arange(first, row)
    if not np.any(order[1:] < order[:-1]):
        return requests
    # A moved free takes the event of the request that it now follows, so that events stay in order.
    event = np.maximum.accumulate(requests.event[order])
    return replace(
        requests,
        op=requests.op[order],
        block=requests.block[order],
        size=requests.size[order],
        group=requests.group[order],
        address=requests.address[order],
        event=event,
    )


def with_empties(requests: Requests, emptied: Sequence[Emptied]) -> Requests:
    """The requests with the program's empty_cache calls among them."""
    if not emptied:
        return requests
    events = np.array([e.event for e in emptied], np.int32)
    ops = np.array([Op.EMPTY_CACHE if e.pool_id is None else Op.RELEASE_POOL for e in emptied], np.uint8)
    groups = list(requests.groups)
    codes = []
    for e in emptied:
        key = (e.pool_id or DEFAULT_POOL, 0)
        if e.pool_id is not None and key not in groups:
            groups.append(key)
        codes.append(groups.index(key) if e.pool_id is not None else -1)
    at = np.searchsorted(requests.event, events)

    def insert(column: NDArray[Any], values: Any) -> NDArray[Any]:
        inserted: NDArray[Any] = np.insert(column, at, values)
        return inserted

    return replace(
        requests,
        op=insert(requests.op, ops),
        block=insert(requests.block, -1),
        size=insert(requests.size, 0),
        group=insert(requests.group, np.array(codes, np.int32)),
        address=insert(requests.address, 0),
        event=insert(requests.event, events),
        groups=tuple(groups),
    )


def _emptying_stacks(stacks: StackTable) -> frozenset[int]:
    """Stacks that come from an empty_cache call, in Python or C++ spelling."""
    frames = [i for i, f in enumerate(stacks.frames) if f.name == "empty_cache" or "emptyCache" in f.name]
    if not frames:
        return frozenset()
    hits = np.flatnonzero(np.isin(stacks.frame_ids, frames))
    return frozenset((np.searchsorted(stacks.offsets, hits, "right") - 1).tolist())
