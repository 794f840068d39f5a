"""The self-test: a trace replayed under its own settings must give the recorded placements.

Every choice of block, every miss, map, unmap, flush and retry is the model's own; only the addresses of new segments
are taken from the record. What the test says is the model's credential for every other prediction about this trace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from oomctl import _native
from oomctl.allocator.address import Recorded
from oomctl.allocator.blocks import Block
from oomctl.allocator.growth import Growth, read_growth, with_empties, with_flushed_frees
from oomctl.allocator.limits import NO_LIMITS, Bracket, Limits, bracket
from oomctl.allocator.policy import MIN_BLOCK, SMALL_REQUEST, Policy, policy_of
from oomctl.allocator.replay import Outcome, Schedule, replay
from oomctl.allocator.requests import Op, Requests, read_requests
from oomctl.allocator.start import Start, with_extents
from oomctl.errors import OomctlError
from oomctl.model.alloc_conf import AllocConf, conf_from_recorded
from oomctl.model.common import Version
from oomctl.model.report import Identity
from oomctl.model.snapshot import WENT_ON_ALLOCS, Action, BlockState, DeviceSnapshot, Snapshot
from oomctl.progress import Progress, silent

MAX_REPAIRS: Final = 200
"""Sizes of old blocks that are inferred by comparison, each at the price of a replay up to the difference."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """Everything that replays of one device's trace share.

    Attributes:
        requests: What the program asked for.
        conf: Recorded settings.
        policy: Their rules.
        start: Old blocks with their sizes.
        bracket: What the trace says about the limit.
        growth: The recorded driver calls.
        until: Trace index of the fatal oom, or None if the program went on.
        identity: The self-test's result.
    """

    requests: Requests
    conf: AllocConf
    policy: Policy
    start: Start
    bracket: Bracket
    growth: Growth
    until: int | None
    identity: Identity

    @property
    def exact(self) -> bool:
        """Whether the replay reproduces the recording to the last placement."""
        return not self.identity.reason

    def recorded_driver(self) -> Recorded:
        """The driver of the recording."""
        return Recorded(self.requests.calls, [(s.address, s.size) for s in self.start.segments if not s.expandable])


def identity(snapshot: Snapshot, device_index: int, torch: Version) -> Identity:
    """How well the model reproduces a snapshot's trace under its recorded settings.

    Args:
        snapshot: With a trace for the device.
        device_index: Device ordinal.
        torch: (major, minor) that wrote it.

    Raises:
        OomctlError: There is no such device, or it has no trace.
    """
    return read_recording(snapshot, device_index, torch).identity


def read_recording(
    snapshot: Snapshot,
    device_index: int,
    torch: Version,
    *,
    limit: int | None = None,
    until: int | None = None,
    ahead: Callable[[], Requests] | None = None,
    progress: Progress = silent,
) -> Recording:
    """Takes a trace apart and tests the model on it.

    Args:
        snapshot: With a trace for the device.
        device_index: Device ordinal.
        torch: (major, minor) that wrote it.
        limit: Bytes, where known; only used if the trace does not contradict it.
        until: Trace index of the fatal oom; None for the last one unless the program went on after it.
        ahead: Gives what `read_requests` gives for the device, where that was begun earlier.
        progress: Told the share done.

    Raises:
        OomctlError: There is no such device, or it has no trace.
    """
    device = device_of(snapshot, device_index)
    trace = device.trace
    assert trace is not None
    conf = conf_from_recorded(snapshot.settings, torch)
    if snapshot.settings is None and _maps(device):
        conf = replace(conf, expandable_segments=True)
    policy = policy_of(conf, torch, snapshot.backend)
    progress("reading the requests", 0.0)
    _native.give_back_memory()
    requests = read_requests(device) if ahead is None else ahead()
    _native.give_back_memory()
    growth = read_growth(requests, trace, device.pools, snapshot.stacks, policy)
    requests = with_empties(with_flushed_frees(requests, growth.attempts), growth.emptied)
    if until is None:
        until = fatal_oom(requests)
    found = bracket(growth, trace.device_free, policy, until)
    limits = NO_LIMITS
    if limit is not None and found.low <= limit < found.high:
        limits = Limits(fraction=limit) if found.kind != "device" else found.limits(limit)
    elif found.best is not None:
        limits = found.limits(found.best)
    draft = Recording(requests, conf, policy, requests.start, found, growth, until, Identity(0, 0, 0, 0))
    test = _SelfTest(draft, device, limits, progress)
    return replace(draft, start=test.start, identity=test.result(snapshot.backend))


def device_of(snapshot: Snapshot, device_index: int) -> DeviceSnapshot:
    """The device with this ordinal.

    Raises:
        OomctlError: There is none, or it has no trace.
    """
    device = next((d for d in snapshot.devices if d.index == device_index), None)
    if device is None:
        there = ", ".join(str(d.index) for d in snapshot.devices) or "none"
        raise OomctlError(f"the snapshot has nothing about GPU {device_index}", f"devices in it: {there}")
    if device.trace is None:
        raise OomctlError(
            f"the snapshot has no trace for GPU {device_index}, so there is nothing to replay",
            "call torch.cuda.memory._record_memory_history() when the program starts, and dump before turning it off",
        )
    return device


def fatal_oom(requests: Requests) -> int | None:
    """Trace index of the last oom event, unless the program allocated on after it."""
    rows = np.flatnonzero(requests.op == Op.OOM)
    if not len(rows):
        return None
    last = int(rows[-1])
    if np.count_nonzero(requests.op[last:] == Op.ALLOC) >= WENT_ON_ALLOCS:
        return None
    return int(requests.event[last])


def _maps(device: DeviceSnapshot) -> bool:
    """Whether segments are expandable whatever the settings say."""
    trace = device.trace
    return bool(np.any(device.segments.is_expandable)) or (
        trace is not None and bool(np.any(trace.action == Action.SEGMENT_MAP))
    )


class _SelfTest:
    """Replays under the recorded settings, with repairs of what the record leaves open."""

    def __init__(self, draft: Recording, device: DeviceSnapshot, limits: Limits, progress: Progress) -> None:
        self.draft, self.device, self.limits, self.progress = draft, device, limits, progress
        self.extra: dict[int, int] = {}
        self.schedule: Schedule = ()
        if not draft.bracket.steady:
            self.schedule = refusals(draft.growth)
        self.start = with_extents(draft.requests.start, draft.policy, self.extra)
        self.outcome = self._infer_extents() or self._replay(stop=False)
        if not self._is_exact(self.outcome) and not self.schedule:
            # A limit that moved, as when a neighbour fills the card for a moment, shows as recorded refusals.
            before = self.outcome
            self.schedule = refusals(draft.growth)
            again = self._replay(stop=False)
            if again.exact > before.exact or self._is_exact(again):
                self.outcome = again
            else:
                self.schedule = ()

    def _replay(self, *, stop: bool) -> Outcome:
        draft = replace(self.draft, start=self.start)
        return replay(
            draft.requests,
            draft.policy,
            limits=self.limits,
            driver=draft.recorded_driver(),
            start=self.start,
            compare=True,
            stop_at_mismatch=stop,
            schedule=self.schedule,
            progress=self.progress,
        )

    def _infer_extents(self) -> Outcome | None:
        """Finds the true sizes of old blocks: a wrong one makes the replay choose another hole than the record.

        Returns:
            The replay if it ran to the end without a difference.
        """
        uncertain = {b.key for s in self.draft.requests.start.segments for b in s.blocks if not b.size}
        for _ in range(MAX_REPAIRS if uncertain else 0):
            outcome = self._replay(stop=True)
            if outcome.mismatch is None:
                return outcome
            found = _missing_extent(outcome, uncertain)
            if found is None:
                break
            key, size = found
            self.extra[key] = self.extra.get(key, 0) + size
            self.start = with_extents(self.draft.requests.start, self.draft.policy, self.extra)
        return None

    def _is_exact(self, outcome: Outcome) -> bool:
        driver = outcome.heap.driver
        assert isinstance(driver, Recorded)
        same = outcome.mismatch is None and outcome.rescued == 0 and driver.exact
        return same and driver.matched == len(self.draft.requests.calls)

    def result(self, backend: str) -> Identity:
        """The self-test in numbers, with the reason if it failed."""
        driver = self.outcome.heap.driver
        assert isinstance(driver, Recorded)
        requests = self.draft.requests
        allocs = int(np.count_nonzero(requests.op == Op.ALLOC))
        reason = ""
        if not allocs:
            reason = "the trace has no allocations to test the model on"
        elif not self._is_exact(self.outcome):
            reason = self._difference(backend)
        elif requests.start.homeless:
            reason = f"{requests.start.homeless:,} blocks from before the trace lie in no segment of the file"
        elif not self._ends_alike():
            reason = "the blocks at the end of the replay are not those of the file"
        return Identity(allocs, self.outcome.exact, len(requests.calls), driver.matched, reason)

    def _difference(self, backend: str) -> str:
        if backend == "npu":
            return "Ascend's allocator differs from the CUDA one that is modelled"
        causes = list(self.draft.requests.problems)
        if not self.draft.bracket.steady:
            causes.append("what stopped the allocator changed during the recording, as when a neighbour needs the card")
        if not self.draft.requests.complete:
            causes.append("the trace starts in the middle of the program")
        mismatch = self.outcome.mismatch
        where = ""
        if mismatch is not None:
            where = f"first difference at event {int(self.draft.requests.event[mismatch.row]):,}"
        return "; ".join(filter(None, [where, *causes])) or "driver calls differ from the recorded ones"

    def _ends_alike(self) -> bool:
        """Whether the final blocks are the file's: address, size and whether in use."""
        blocks, mine = self.device.blocks, {}
        heap = self.outcome.heap
        firsts: list[Block] = [*heap.segments.values(), *(region.first for region in heap.regions)]
        for first in firsts:
            block: Block | None = first
            while block is not None:
                if block.mapped:
                    mine[block.address] = (block.size, block.idle)
                block = block.next
        idle = (blocks.state == BlockState.INACTIVE).tolist()
        theirs = zip(blocks.address.tolist(), zip(blocks.size.tolist(), idle, strict=True), strict=True)
        return mine == dict(theirs)


def _missing_extent(outcome: Outcome, uncertain: set[int]) -> tuple[int, int] | None:
    """Which old block is larger than its request says, and by how many bytes, from the first difference.

    An allocation starts where an idle block starts. If the recorded one starts a little inside an idle block, the old
    block before that one reaches up to there. If the replay chose a hole that the record passed over, the hole was too
    small, so the old block before it reaches into it.
    """
    mismatch = outcome.mismatch
    if mismatch is None:
        return None
    owners = {id(block): key for key, block in outcome.live.items() if key in uncertain}
    placed, recorded = mismatch.placed, mismatch.recorded
    holes: list[Block] = [] if placed is None else [placed]
    for arena in outcome.heap.arenas():
        holes += [block for _, start, block in arena.idle if start < recorded < start + block.size]
    for hole in holes:
        inside = recorded - hole.address
        if 0 < inside <= SMALL_REQUEST and id(hole.prev) in owners:
            return owners[id(hole.prev)], inside
    if placed is not None and id(placed.prev) in owners:
        rest = placed.next
        hole_size = placed.size + (rest.size if rest is not None and rest.idle else 0)
        # Just too small for the request; but an idle rest of 1 MiB or less cannot exist.
        missing = hole_size - mismatch.size + MIN_BLOCK
        if hole_size - missing <= SMALL_REQUEST:
            missing = hole_size
        if missing <= SMALL_REQUEST:
            return owners[id(placed.prev)], missing
    return None


def refusals(growth: Growth) -> Schedule:
    """Limits that refuse exactly what was refused in the recording and nothing else."""
    schedule: list[tuple[int, Limits]] = [(0, NO_LIMITS)]
    for attempt in growth.attempts:
        if attempt.refused:
            room = attempt.after + attempt.need
            schedule.append((attempt.event, Limits(fraction=room if attempt.served else room - 1)))
            schedule.append((attempt.event + 1, NO_LIMITS))
    return schedule
