"""One setting, replayed: the verdict, and how sure it is.

A verdict is firm when the self-test is exact, the trace complete, the limit known and all models of address order
agree. Everything else names its weak link. What a replay says is that a request *would have been served*; the program
may still fail later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from oomctl.allocator.requests import Op, Requests
from oomctl.allocator.selftest import Recording
from oomctl.model.alloc_conf import AllocConf
from oomctl.model.report import WhatIfRun
from oomctl.units import format_size

CURVE_POINTS: Final = 240
"""Points that a reserved curve is thinned to; the highest of each stretch stays."""
TRUSTED: Final = 0.999
"""Share of exact placements below which predictions are withheld."""
FIT_STEP: Final = 2 << 20
"""Bytes; how closely the smallest limit is looked for."""
FIRM, LIKELY, OPEN, ESTIMATE = "firm", "likely", "open", "estimate"
MIDDLE: Final = "the trace starts in the middle of the program; what happened before it is not known"


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
        self.recording, self.room = job.recording, job.limit
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
            if own.exact < TRUSTED * own.allocs or (not own.allocs and own.segments_exact < own.segments):
                return self._withheld(f"withheld, as the replay does not reproduce the recording: {own.reason}")
            self.doubt(f"the replay reproduces the recording but for details: {own.reason}")
        if case.conf.backend != "native":
            return estimate.async_run(recording, case.text, self.room.ends, CURVE_POINTS)
        seedings = self._seedings()
        ends = [self._limits(value) for value in self.room.ends]
        outcomes = [self._replay(limits, seedings[0]) for limits in ends]
        main = outcomes[0]
        served = self._verdict(outcomes, seedings[0])
        self._second_opinions(main, ends[0], seedings)
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

    def _limits(self, value: int) -> Limits:
        """Limits if the limit is this many bytes; a fraction in the setting itself counts as well."""
        room = self.room
        limits = NO_LIMITS if value >= UNLIMITED and room.capacity >= UNLIMITED else room.at(value)
        share = self.case.conf.per_process_memory_fraction
        if share is not None and share < 1 and room.capacity < UNLIMITED:
            limits = Limits(min(limits.fraction, int(share * room.capacity)), limits.capacity)
        return limits

    def _replay(
        self,
        limits: Limits,
        seeding: str,
        driver: Callable[[], Driver] | None = None,
        requests: Requests | None = None,
    ) -> Outcome:
        room, until = self.room, self.recording.until
        schedule: Schedule = ()
        if room.before is not None and until is not None:
            schedule = ((until, limits),)
            limits = room.before
        return replay(
            self.recording.requests if requests is None else requests,
            self.case.policy,
            limits=limits,
            driver=self.recording.recorded_driver() if driver is None else driver(),
            start=self.recording.start,
            seeding=seeding,
            until=until,
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

    def _verdict(self, outcomes: Sequence[Outcome], seeding: str) -> bool | None:
        """Whether the fatal request was served, if both ends of the limit say the same."""
        if self.recording.until is None:
            return None
        verdicts = {outcome.failed_at is None for outcome in outcomes}
        if len(verdicts) > 1:
            needed = self._least(lambda v: self._replay(self._limits(v), seeding).failed_at is None, *self.room.ends)
            self.doubt(f"served if the limit was at least {format_size(needed)}, which the trace leaves open", OPEN)
        return verdicts.pop()

    def _second_opinions(self, main: Outcome, limits: Limits, seedings: Sequence[str]) -> None:
        """Other address orders, old-block placements and request sizes, to see whether the verdict rests on them."""
        served = main.failed_at is None
        if not self.recording.requests.complete:
            self.doubt(MIDDLE)
        for seeding in seedings[1:]:
            if (self._replay(limits, seeding).failed_at is None) != served:
                self.doubt("it depends on what happened before the recording started")
        smaller = self._smaller_request()
        if smaller is not None and (self._replay(limits, seedings[0], requests=smaller).failed_at is None) != served:
            self.doubt("the failing request is only known as rounded under the recorded setting", OPEN)
        if not main.heap.segments or getattr(main.heap.driver, "exact", False):
            return
        occupied = [(s.address, s.size) for s in self.recording.start.segments if not s.expandable]
        for order in (Chunks, Descending):
            other = self._replay(limits, seedings[0], partial(order, occupied))
            if (other.failed_at is None) != served:
                self.doubt("it depends on where the driver puts segments, which no recording tells")
                return
            if other.peak_reserved != main.peak_reserved:
                self.doubt("the peak depends on where the driver puts segments, which no recording tells")
                return

    def _smaller_request(self) -> Requests | None:
        """The requests with the fatal one as small as its recorded size allows, where that changes its block."""
        recorded, until = self.recording.policy, self.recording.until
        if until is None or max(recorded.divisions) <= 1:
            return None
        requests = self.recording.requests
        row = int(np.flatnonzero((requests.op == Op.OOM) & (requests.event == until))[0])
        size = requests.size.copy()
        size[row] = recorded.least_request(int(size[row]))
        return replace(requests, size=size)

    def _remarks(self, main: Outcome) -> None:
        """What a reader should know besides the numbers."""
        if self.case.policy.gc_threshold and not main.heap.collects:
            self.notes.append("garbage_collection_threshold does nothing without set_per_process_memory_fraction")
        if main.rescued:
            self.doubt(
                f"{main.rescued:,} requests that the program failed on and went past would have been served; "
                "it would have gone on differently from there"
            )
        share = self.case.conf.per_process_memory_fraction
        if share is not None and share < 1 and self.room.capacity >= UNLIMITED:
            self.doubt("per_process_memory_fraction is left out, as the size of the card is not known")

    def _smallest_limit(self, seeding: str) -> int | None:
        """The smallest limit, in bytes, at which every request is served; None if none was found."""

        def outcome(limit: int) -> Outcome:
            limits = Limits(limit, limit) if self.case.policy.gc_threshold else Limits(capacity=limit)
            return replay(
                self.recording.requests,
                self.case.policy,
                limits=limits,
                driver=self.recording.recorded_driver(),
                start=self.recording.start,
                seeding=seeding,
                until=self.recording.until,
            )

        free = outcome(UNLIMITED)
        if free.failed_at is not None:
            return None
        return self._least(lambda limit: outcome(limit).failed_at is None, 0, free.peak_reserved)

    def _least(self, serves: Callable[[int], bool], low: int, high: int) -> int:
        """The smallest limit in (low, high] that serves, to a step of 2 MiB; `high` is known to."""
        steps = -(-(high - low) // FIT_STEP)
        first, last = 0, steps
        while first < last:
            middle = (first + last) // 2
            if serves(min(low + middle * FIT_STEP, high)):
                last = middle
            else:
                first = middle + 1
        return min(low + last * FIT_STEP, high)


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
