"""One setting, replayed: the verdict, and how sure it is.

A verdict is firm when the self-test is exact, the trace complete, the limit known and all models of address order
agree. Everything else names its weak link. What a replay says is that a request *would have been served*; the program
may still fail later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

from oomctl.allocator import estimate
from oomctl.allocator.address import Chunks, Descending
from oomctl.allocator.heap import Driver
from oomctl.allocator.limits import NO_LIMITS, Limits
from oomctl.allocator.policy import UNLIMITED, Policy
from oomctl.allocator.replay import Outcome, Schedule, replay
from oomctl.allocator.selftest import Recording
from oomctl.model.alloc_conf import AllocConf
from oomctl.model.report import WhatIfRun

CURVE_POINTS: Final = 240
"""Points that a reserved curve is thinned to; the highest of each stretch stays."""
TRUSTED: Final = 0.999
"""Share of exact placements below which predictions are withheld."""
FIT_STEP: Final = 2 << 20
"""Bytes; how closely the smallest limit is looked for."""
FIRM, LIKELY, OPEN, ESTIMATE = "firm", "likely", "open", "estimate"


@dataclass(frozen=True, slots=True)
class Room:
    """The limit that replays run under.

    Attributes:
        low: Bytes; the least that it can be. `UNLIMITED` for none.
        high: Bytes; the most that it can be.
        is_fraction: It is a memory fraction's cap, not the card.
        capacity: Bytes; the card, a limit in any case.
        before: Limits up to the fatal request, where another limit held then.
    """

    low: int
    high: int
    is_fraction: bool
    capacity: int
    before: Limits | None = None

    def at(self, value: int) -> Limits:
        """Limits if the limit is this many bytes."""
        if self.is_fraction:
            return Limits(value, self.capacity)
        return Limits(UNLIMITED, min(value, self.capacity))

    @property
    def ends(self) -> tuple[int, ...]:
        """The values to try: one if it is known."""
        return (self.low,) if self.low == self.high else (self.low, self.high)


@dataclass(frozen=True, slots=True)
class Case:
    """One setting to try."""

    text: str
    conf: AllocConf
    policy: Policy
    refused: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """All that one setting's replays need; travels to worker processes."""

    recording: Recording
    limit: Room
    fit: bool

    def __call__(self, case: Case) -> WhatIfRun:
        """The run of one setting."""
        return Trial(self, case).run()


class Trial:
    """The replays of one setting."""

    def __init__(self, job: Job, case: Case) -> None:
        self.job, self.case = job, case
        self.recording = job.recording
        self.certainty = FIRM
        self.notes: list[str] = []

    def doubt(self, note: str, certainty: str = LIKELY) -> None:
        """Notes a weak link; certainty only ever falls."""
        self.notes.append(note)
        if self.certainty == FIRM or certainty == OPEN:
            self.certainty = certainty

    def run(self) -> WhatIfRun:
        """All replays of this setting as one result."""
        case, recording = self.case, self.recording
        if case.refused:
            return self._withheld(f"this version does not start with the setting: {case.refused}")
        own = recording.identity
        if not recording.exact:
            if own.exact < TRUSTED * own.allocs or not own.allocs:
                return self._withheld(f"withheld, as the replay does not reproduce the recording: {own.reason}")
            self.doubt(f"the replay reproduces the recording but for details: {own.reason}")
        if case.conf.backend != "native":
            return estimate.async_run(recording, case.text, self.job.limit.ends, CURVE_POINTS)
        seedings = self._seedings()
        outcomes = [self._replay(end, seedings[0]) for end in self.job.limit.ends]
        main = outcomes[0]
        served = self._verdict(outcomes)
        self._second_opinions(main, seedings[1:])
        if self.certainty == OPEN:
            served = None
        self._remarks(main)
        failed = main.failed_at is not None
        events, reserved = thin(main.curve_event, main.curve_reserved, CURVE_POINTS)
        return WhatIfRun(
            alloc_conf=case.text,
            peak_reserved=main.peak_reserved,
            peak_allocated=main.peak_allocated,
            served=served,
            oom=None if self.certainty == OPEN else failed,
            failed_at=main.failed_at,
            retries=main.retries,
            device_allocs=main.allocs,
            device_frees=main.frees,
            smallest_limit=self._smallest_limit(seedings[0]) if self.job.fit else None,
            certainty=self.certainty,
            notes=tuple(self.notes),
            curve_event=events,
            curve_reserved=reserved,
        )

    def _withheld(self, reason: str) -> WhatIfRun:
        return WhatIfRun(self.case.text, None, None, None, None, certainty=OPEN, notes=(reason,))

    def _replay(self, limit: int, seeding: str, driver: Callable[[], Driver] | None = None) -> Outcome:
        bounds = self.job.limit
        limits = NO_LIMITS if limit >= UNLIMITED and bounds.capacity >= UNLIMITED else bounds.at(limit)
        schedule: Schedule = ()
        if bounds.before is not None and self.recording.until is not None:
            schedule = ((self.recording.until, limits),)
            limits = bounds.before
        return replay(
            self.recording.requests,
            self.case.policy,
            limits=limits,
            driver=self.recording.recorded_driver() if driver is None else driver(),
            start=self.recording.start,
            seeding=seeding,
            until=self.recording.until,
            schedule=schedule,
        )

    def _seedings(self) -> tuple[str, ...]:
        """Ways to place old blocks: the one that proved best for this kind of setting, and one to compare with."""
        if self.recording.requests.complete:
            return ("pinned",)
        policy, recorded = self.case.policy, self.recording.policy
        if policy == recorded:
            return ("pinned",)
        if policy.expandable or recorded.expandable:
            return ("pinned", "packed") if policy.expandable == recorded.expandable else ("packed", "pinned")
        if policy.max_split < recorded.max_split:
            return ("hybrid", "packed")
        return ("pinned", "packed")

    def _verdict(self, outcomes: Sequence[Outcome]) -> bool | None:
        """Whether the fatal request was served, if both ends of the limit say the same."""
        verdicts = {self._served(outcome) for outcome in outcomes}
        if len(verdicts) > 1:
            self.doubt("the limit is not known closely enough to tell; --limit would settle it", OPEN)
        return verdicts.pop() if self.recording.until is not None else None

    def _served(self, outcome: Outcome) -> bool:
        """Whether nothing failed up to and including the last request."""
        return outcome.failed_at is None

    def _second_opinions(self, main: Outcome, other_seedings: Sequence[str]) -> None:
        """Replays with another address order and another placement of old blocks, to see what rests on them."""
        end = self.job.limit.ends[0]
        if not self.recording.requests.complete:
            self.doubt("the trace starts in the middle of the program")
        for seeding in other_seedings:
            if self._served(self._replay(end, seeding)) != self._served(main):
                self.doubt("it depends on what happened before the recording started", OPEN)
        driver = main.heap.driver
        follows = getattr(driver, "exact", False)
        if main.heap.segments and not follows:
            occupied = [(s.address, s.size) for s in self.recording.start.segments if not s.expandable]
            for other in (Chunks, Descending):
                outcome = self._replay(end, self._seedings()[0], partial(other, occupied))
                if self._served(outcome) != self._served(main):
                    self.doubt("the answer depends on where the driver puts segments, which no recording tells")
                    break
                if outcome.peak_reserved != main.peak_reserved:
                    self.doubt("the peak depends a little on where the driver puts segments")
                    break

    def _remarks(self, main: Outcome) -> None:
        """What a reader should know besides the numbers."""
        bounds, policy = self.job.limit, self.case.policy
        if policy.gc_threshold and (not bounds.is_fraction or bounds.low >= UNLIMITED):
            self.notes.append("garbage_collection_threshold does nothing without set_per_process_memory_fraction")
        if main.rescued:
            self.doubt(
                f"{main.rescued:,} requests that the program failed on and went past would have been served; "
                "it would have gone on differently from there"
            )
        if policy != self.recording.policy and any(self.recording.policy.divisions):
            self.notes.append("the failing request is known as rounded under the recorded setting only")
        if self.case.conf.per_process_memory_fraction is not None:
            self.doubt("per_process_memory_fraction is not replayed; give the cap with --limit")

    def _smallest_limit(self, seeding: str) -> int | None:
        """The smallest limit, in bytes, at which every request is served; None if none was found."""

        def runs(limit: int) -> bool:
            limits = Limits(limit, limit) if self.case.policy.gc_threshold else Limits(capacity=limit)
            outcome = replay(
                self.recording.requests,
                self.case.policy,
                limits=limits,
                driver=self.recording.recorded_driver(),
                start=self.recording.start,
                seeding=seeding,
                until=self.recording.until,
            )
            return outcome.failed_at is None

        free = replay(
            self.recording.requests,
            self.case.policy,
            driver=self.recording.recorded_driver(),
            start=self.recording.start,
            seeding=seeding,
            until=self.recording.until,
        )
        if free.failed_at is not None:
            return None
        low, high = 0, -(-free.peak_reserved // FIT_STEP)
        while low < high:
            middle = (low + high) // 2
            if runs(middle * FIT_STEP):
                high = middle
            else:
                low = middle + 1
        return high * FIT_STEP


def thin(events: Sequence[int], values: Sequence[int], points: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """At most about this many points of a step curve; of each stretch the highest and the last stay."""
    n = len(events)
    if n <= points:
        return tuple(events), tuple(values)
    kept = {0, n - 1}
    edges = np.linspace(0, n, points // 2 + 1).astype(int).tolist()
    for low, high in pairwise(edges):
        kept.add(max(range(low, high), key=values.__getitem__))
        kept.add(high - 1)
    order = sorted(kept)
    return tuple(events[i] for i in order), tuple(values[i] for i in order)
