"""The requests of a recording as steps that a program can make again, from an empty allocator to the failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oomctl.allocator.limits import Bracket
from oomctl.allocator.policy import SMALL_REQUEST, Policy
from oomctl.allocator.requests import Op
from oomctl.allocator.selftest import Recording
from oomctl.analysis.frames import frame_kind
from oomctl.errors import OomctlError
from oomctl.model.common import Version
from oomctl.model.snapshot import PoolId, Snapshot
from oomctl.model.stacks import NO_STACK, Frame

Stack = tuple[Frame, ...]
FILLER: Final = -1_000_000
"""Keys from here downwards are blocks that only hold a place while the state before the recording is rebuilt."""


class Step(NamedTuple):
    """One request.

    Attributes:
        op: ALLOC, FREE, EMPTY_CACHE or OOM (a request that failed; the last step is one).
        key: Which block; what FREE frees.
        size: Bytes asked for; 0 where none.
        group: Index into `Pattern.groups`.
        stack: Index into `Pattern.stacks`, or `NO_STACK`.
    """

    op: Op
    key: int = -1
    size: int = 0
    group: int = 0
    stack: int = NO_STACK


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """Requests from an empty allocator to the one that fails.

    Attributes:
        table: int64[n, 5], the fields of `Step` in order of time; the last is the failing request.
        groups: (pool id, stream) pairs.
        stacks: Python frames, innermost first, their paths shortened.
        conf: Settings string in force.
        limit: Bytes that the allocator may reserve.
        policy: Rules of the settings.
        torch: (major, minor) that was recorded.
        notes: What the recording left open or the steps leave out.
    """

    table: NDArray[np.int64]
    groups: tuple[tuple[PoolId, int], ...]
    stacks: tuple[Stack, ...]
    conf: str
    limit: int
    policy: Policy
    torch: Version
    notes: tuple[str, ...] = ()

    @property
    def requests(self) -> int:
        """Allocations, the failing one included."""
        return int(np.isin(self.table[:, 0], (Op.ALLOC, Op.OOM)).sum())

    @property
    def steps(self) -> list[Step]:
        """The steps one by one."""
        return [Step(Op(op), *rest) for op, *rest in self.table.tolist()]

    def with_steps(self, steps: Sequence[Step]) -> Pattern:
        """The same with other steps."""
        return replace(self, table=np.array(steps, np.int64).reshape(-1, 5))


def read_pattern(snapshot: Snapshot, recording: Recording, torch: Version, conf: str) -> Pattern:
    """Takes the pattern out of a recording; `limit` is still 0, see `limits_of`.

    Args:
        snapshot: For its stacks.
        recording: Requests, old blocks and the failure.
        torch: (major, minor).
        conf: Settings string in force.

    Raises:
        OomctlError: Nothing failed at the end of the trace.
    """
    if recording.until is None:
        raise OomctlError(
            "nothing failed at the end of this trace, so there is no failure to reproduce",
            "give a snapshot that was dumped right after the failure",
        )
    requests = recording.requests
    groups = list(requests.groups)
    steps = [*_rebuilt(recording, groups)]
    known = {step.key for step in steps if step.op == Op.ALLOC}
    kinds: dict[int, int] = {}
    trace = next(d.trace for d in snapshot.devices if d.trace is not None and len(d.trace) == requests.events)
    released = 0
    columns = (requests.op, requests.block, requests.size, requests.group, requests.event)
    for op, key, size, group, event in zip(*(column.tolist() for column in columns), strict=True):
        if event > recording.until:
            break
        stack = kinds.setdefault(int(trace.stack[event]), len(kinds))
        if op == Op.ALLOC:
            known.add(key)
            steps.append(Step(Op.ALLOC, key, size, group, stack))
        elif op in (Op.FREE, Op.FREE_COMPLETED) and key in known:
            known.discard(key)
            steps.append(Step(Op.FREE, key))
        elif op == Op.OOM:
            steps.append(Step(Op.OOM, -1, size, max(group, 0), stack))
        elif op == Op.EMPTY_CACHE:
            steps.append(Step(Op.EMPTY_CACHE))
        elif op == Op.RELEASE_POOL:
            released += 1
    notes = []
    if requests.start.segments:
        notes.append("the state before the first recorded event is rebuilt block by block, without its history")
    if bool((requests.op == Op.FREE_REQUESTED).any()):
        notes.append("blocks that waited for another stream are freed when that was done")
    if released:
        notes.append("private pools are kept where the recording gave them back")
    if any(pool != (0, 0) for pool, _ in groups):
        notes.append("private pools, graph captures among them, are made with torch.cuda.MemPool")
    stacks = tuple(_short(snapshot.stacks[stack]) for stack in kinds)
    table = np.array(steps, np.int64).reshape(-1, 5)
    keyed = np.isin(table[:, 0], (Op.ALLOC, Op.FREE))
    table[keyed, 1] = np.unique(table[keyed, 1], return_inverse=True)[1].reshape(-1)  # the heap counts from 0
    return Pattern(table, tuple(groups), stacks, conf, 0, recording.policy, torch, tuple(notes))


def limits_of(found: Bracket, recording: Recording, given: int | None) -> Iterator[int]:
    """Limits that may make the recorded request fail and no other, the likeliest first; bytes.

    Args:
        found: What the trace says.
        recording: For the failing attempt.
        given: What the user or a message says.
    """
    if given is not None:
        yield given
    if found.steady:
        yield (found.low + found.high) // 2
        if found.best is not None:
            yield found.best
        yield found.low
        yield found.high - 1
    for attempt in recording.growth.attempts:
        if attempt.event == recording.until:
            yield attempt.after + attempt.need - 1
            yield attempt.after + attempt.need // 2


def _rebuilt(recording: Recording, groups: list[tuple[PoolId, int]]) -> Iterator[Step]:
    """Steps that lead to the segments and blocks from before the trace.

    Segment by segment: a request as large as the segment makes it, and is freed; then its blocks are taken one by one,
    in order of address. As everything made before is full, each lands behind the last. What stands for an idle stretch
    is freed at the end.
    """
    fillers = []
    number = FILLER
    for segment in recording.start.segments:
        pair = (segment.pool_id, segment.stream)
        if pair not in groups:
            groups.append(pair)
        group = groups.index(pair)
        if not segment.is_small and not segment.expandable:
            yield Step(Op.ALLOC, number, segment.size, group)
            yield Step(Op.FREE, number)
            number -= 1
        position = segment.address
        for block in segment.blocks:
            if _fills(block.address - position, segment.is_small or segment.expandable):
                fillers.append(number)
                yield Step(Op.ALLOC, number, block.address - position, group)
                number -= 1
            rounded = recording.policy.round_one(block.request)
            yield Step(Op.ALLOC, block.key, block.request if rounded == block.size else block.size, group)
            position = block.address + block.size
        rest = segment.address + segment.size - position
        if _fills(rest, segment.is_small or segment.expandable):
            fillers.append(number)
            yield Step(Op.ALLOC, number, rest, group)
            number -= 1
    for key in fillers:
        yield Step(Op.FREE, key)


def _fills(size: int, any_size: bool) -> bool:
    """Whether an idle stretch can be taken by a request of its own: a short one in a large segment cannot exist."""
    return size > (0 if any_size else SMALL_REQUEST)


def _short(frames: Stack) -> Stack:
    """Python frames with the parts of paths that say where somebody's files lie left out."""
    return tuple(replace_path(frame) for frame in frames if frame_kind(frame) != "cpp")


def replace_path(frame: Frame) -> Frame:
    """A frame whose library keeps its path from `site-packages` on, and whose user file only its name."""
    path = frame.filename.replace("\\", "/")
    for mark in ("/site-packages/", "/dist-packages/", "/lib/python"):
        if mark in path:
            return frame._replace(filename=path[path.index(mark) :])
    kept = path.rsplit("/", 1)[-1]
    return frame._replace(filename=path if frame_kind(frame) != frame_kind(frame._replace(filename=kept)) else kept)


def with_limit(pattern: Pattern, limit: int) -> Pattern:
    """The same steps under another limit, in bytes."""
    return replace(pattern, limit=limit)
