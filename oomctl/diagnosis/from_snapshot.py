"""A snapshot (and the log beside it) concluded, one conclusion a device."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from oomctl import __version__
from oomctl.analysis.categories import category_rows
from oomctl.analysis.frames import basename, label, user_frames
from oomctl.analysis.incident import Incident, incident, newest
from oomctl.analysis.moment import segment_size
from oomctl.analysis.phases import PHASES, phase_of
from oomctl.diagnosis.codes import code_for
from oomctl.diagnosis.culprits import Ranking, owners_label, rank
from oomctl.diagnosis.fragmentation import PROVED, SUBSTANTIAL
from oomctl.diagnosis.registry import DETECTORS
from oomctl.diagnosis.views import holes, segment_map, steps, timeline
from oomctl.diagnosis.weigh import NO_CARD, NO_EVENTS, weigh
from oomctl.errors import OomctlError
from oomctl.model.alloc_conf import AllocConf, ConfIssue, lint, parse_conf
from oomctl.model.common import InputFile, Skipped, VersionRange
from oomctl.model.conclusion import Conclusion, Facts
from oomctl.model.evidence import Evidence
from oomctl.model.log import OomEvent
from oomctl.model.report import Budget, Device, EvidenceItem, Report, Steps, Verdict, WhatIf
from oomctl.model.snapshot import REST_OF_FILE, Action, DeviceSnapshot, Snapshot
from oomctl.progress import Progress, silent
from oomctl.units import format_size, half_digit

if TYPE_CHECKING:
    from oomctl.allocator.requests import Requests

MOST_BESIDE: Final = 4_000_000
"""Events up to which two pieces of work go on side by side: both need memory in proportion."""


def conclude_snapshots(
    evidence: Evidence, user_roots: tuple[str, ...] = (), whatif: bool = True, progress: Progress = silent
) -> tuple[Conclusion, ...]:
    """Concludes each device of each snapshot; failed ones come first.

    Args:
        evidence: One incident with at least one snapshot.
        user_roots: Path prefixes that are the user's.
        whatif: Replay the trace under other settings.
        progress: Called with what is being done.
    """
    found = []
    todo = [(i, s, d) for i, s in enumerate(evidence.snapshots) for d in s.devices]
    for number, (place, snapshot, device) in enumerate(todo):
        progress(f"diagnosing GPU {device.index}", number / len(todo))
        own = replace(evidence, inputs=_inputs_of(evidence, place))
        found.append(_conclude(own, snapshot, device, user_roots, whatif, progress))
    order = {"no_oom": 2, "uncertain": 1}
    return tuple(sorted(found, key=lambda c: order.get(c.report.verdict.cls, 0)))


def _inputs_of(evidence: Evidence, place: int) -> tuple[InputFile, ...]:
    """The files that one of several snapshots is concluded from: its own, and what is none."""
    files = [given for given in evidence.inputs if given.kind == "snapshot"]
    if len(files) != len(evidence.snapshots):
        return evidence.inputs
    return tuple(given for given in evidence.inputs if given.kind != "snapshot" or given is files[place])


def _conclude(
    evidence: Evidence,
    snapshot: Snapshot,
    device: DeviceSnapshot,
    user_roots: tuple[str, ...],
    whatif: bool,
    progress: Progress,
) -> Conclusion:
    message = _message_for(evidence, device)
    total = next((e.total_capacity for e in evidence.oom_events if e.gpu in (None, device.index)), None)
    torch = snapshot.torch & evidence.torch
    conf = _conf(evidence, snapshot)
    ahead = _ahead(device) if whatif else None
    found = incident(
        snapshot, device, message=message, torch=torch, device_total=total, conf=conf, user_roots=user_roots
    )
    replayed, unproved = _replayed(found, ahead, progress) if whatif and found.failed else (None, ())
    verdict = _verdict(found, replayed)
    report_conf = snapshot.settings.conf if snapshot.settings else evidence.conf
    ranking = rank(found, verdict.cls, verdict.subtype)
    if verdict.cls == "leak" and ranking.culprits:
        verdict = replace(verdict, headline=f"{verdict.headline}, made by {owners_label(ranking.culprits[0])}")
    failing = found.failed and found.device.trace is not None
    stack = found.device.trace.stack[found.moment.event] if failing and found.device.trace is not None else -1
    frames = snapshot.stacks[int(stack)]
    report = Report(
        oomctl_version=__version__,
        inputs=evidence.inputs,
        device=Device(snapshot.backend, device.index, message.rank if message else None),
        verdict=verdict,
        torch=torch,
        alloc_conf=report_conf,
        conf_issues=_conf_issues(report_conf, torch, snapshot.backend),
        request=found.request,
        oom_events=_events(evidence, found),
        recovered_ooms=len(found.moment.recovered),
        memory_summaries=evidence.memory_summaries,
        series=evidence.series,
        budget=found.budget,
        culprits=ranking.culprits,
        culprits_rest_bytes=ranking.rest_bytes,
        culprits_rest_blocks=ranking.rest_blocks,
        culprits_basis=ranking.basis,
        categories=category_rows(found),
        limits=(*evidence.skipped, *snapshot.skipped, *_limits(found, message), *unproved),
        whatif=replayed,
        timeline=timeline(found, ranking),
        steps=_steps(found, verdict),
        holes=holes(found),
        segment_map=segment_map(found, ranking),
        fingerprint=_fingerprint(verdict, ranking),
    )
    functions = [f.name for f in frames]
    for c in ranking.culprits[:3]:
        functions.extend(line.function for line in c.stack if line.kind != "folded")
    users = user_frames(frames, user_roots)
    first = next((c for c in ranking.culprits if c.accumulation_point), None) or next(iter(ranking.culprits), None)
    site = f"{basename(first.file)}:{first.line} {first.function}" if first else label(users[0]) if users else None
    facts = Facts(
        backend=snapshot.backend,
        torch=torch,
        conf=report.alloc_conf,
        effective=found.conf,
        phase=PHASES[phase_of(frames)],
        operation=frames[0].name if frames else "",
        site=site,
        functions=tuple(dict.fromkeys(functions)),
    )
    if not found.failed:
        return _by_text(evidence, Conclusion(report, facts), _lost(snapshot))
    return Conclusion(report, facts)


def _by_text(evidence: Evidence, own: Conclusion, lost: Skipped | None) -> Conclusion:
    """The log's verdict, where the log names a failure that this snapshot does not hold.

    Args:
        evidence: What the inputs prove.
        own: What the snapshot alone says.
        lost: What is said of its end where the file is damaged.
    """
    from oomctl.diagnosis.from_text import conclude_text

    text = next(iter(conclude_text(replace(evidence, snapshots=()))), None) if evidence.inputs else None
    told = text.report.verdict.cls if text is not None else "no_oom"
    fatal = [e for e in evidence.oom_events if not e.recovered and e.gpu in (None, own.report.device.index)]
    if text is None or told == "no_oom" or (not fatal and told in ("uncertain", "not_an_oom", "leak")):
        return own
    limit = Skipped(
        "the state at the failure",
        "the log names a failure that "
        + ("what is left of the snapshot" if lost is not None else "this snapshot's trace")
        + " does not hold; the verdict rests on the log",
        lost.capture
        if lost is not None
        else "a snapshot that is dumped in the except block of the failing step, or by torch's OOM observer",
    )
    of_text = text.report if text.report.culprits else own.report
    report = replace(
        own.report,
        verdict=text.report.verdict,
        budget=text.report.budget,
        request=text.report.request,
        culprits=of_text.culprits,
        culprits_rest_bytes=of_text.culprits_rest_bytes,
        culprits_rest_blocks=of_text.culprits_rest_blocks,
        culprits_basis=of_text.culprits_basis,
        holes=None,  # those of another state than the books
        limits=(limit, *own.report.limits, *text.report.limits),
        table_notes=text.report.table_notes,
    )
    return Conclusion(report, replace(text.facts, conf=own.facts.conf, effective=own.facts.effective))


def _conf(evidence: Evidence, snapshot: Snapshot) -> AllocConf | None:
    """Settings that a log names, for snapshots too old to record theirs."""
    if snapshot.settings is None and evidence.conf is not None:
        return parse_conf(evidence.conf, snapshot.torch.high or (2, 2)).conf
    return None


def _conf_issues(conf: str | None, torch: VersionRange, backend: str) -> tuple[ConfIssue, ...]:
    """What is wrong with the settings in force."""
    return lint(conf, torch, "linux", backend) if conf else ()


def _message_for(evidence: Evidence, device: DeviceSnapshot) -> OomEvent | None:
    """The log's message about the failure that the trace ends in."""
    events = [e for e in evidence.oom_events if e.gpu in (None, device.index) and e.backend != "host"]
    trace = device.trace
    ooms = np.flatnonzero(trace.action == Action.OOM) if trace is not None else np.zeros(0, np.int64)
    if trace is None or not len(ooms):
        return events[-1] if events else None
    size = int(trace.size[int(ooms[-1])])
    wanted = segment_size(size)
    for event in reversed(events):
        tried = event.tried_to_allocate
        if tried is not None and abs(tried - wanted) <= max(wanted // 100, 1 << 10):
            return event
    return None


def _verdict(found: Incident, replayed: WhatIf | None) -> Verdict:
    if found.failed:
        findings = [f for f in (d.judge(found, replayed) for d in DETECTORS) if f is not None]
        weaknesses = []
        if found.truncated and not bool(found.growth.growing.any()):
            weaknesses.append("the beginning of the trace is missing")
        if found.device.trace is None:
            weaknesses.append(NO_EVENTS)
        if found.message is None and found.budget.limit_kind == "device":
            weaknesses.append(NO_CARD)
        return weigh(findings, weaknesses)
    b = found.budget
    recovered = len(found.moment.recovered)
    live, reserved = format_size(b.active or 0), format_size(b.reserved or 0)
    if found.device.trace is None:
        if _lost(found.snapshot):
            why, what = "the file is damaged and its events are lost", "the segments that could be read"
        else:
            why, what = "the snapshot has no trace", "its segments"
        headline = f"{why}: {what} ({reserved} reserved, {live} live) do not say whether something failed"
        return Verdict("uncertain", None, code_for("uncertain"), "low", headline)
    again = f"; {recovered} failures were caught and the program went on" if recovered else ""
    headline = f"no failure in this trace: at its peak {live} were live and {reserved} reserved{again}"
    items = [EvidenceItem(f"{found.lives.events:,} events, none of them a fatal out-of-memory")]
    growth = found.growth
    if bool(growth.growing.any()) and growth.total > 0.05 * (b.active or 1) and found.grid.source != "none":
        items.append(
            EvidenceItem(
                f"{format_size(growth.total)} were kept from steps, {format_size(growth.per_step)} a step: watch it",
                (("grown", growth.total), ("per_step", growth.per_step)),
            )
        )
    return Verdict("no_oom", None, code_for("no_oom"), "high", headline, tuple(items))


def _events(evidence: Evidence, found: Incident) -> tuple[OomEvent, ...]:
    """Failures that the text names, else those of the trace."""
    if evidence.oom_events:
        return evidence.oom_events
    trace = found.device.trace
    if trace is None:
        return ()
    events = []
    fatal = found.moment.event if found.failed else -1
    for i in (*found.moment.recovered[-50:], *((fatal,) if found.failed else ())):
        events.append(
            OomEvent(
                backend=found.snapshot.backend,
                gpu=found.device.index,
                tried_to_allocate=segment_size(int(trace.size[i]), found.conf.large_segment_size),
                free=trace.device_free.get(i),
                allocated=found.budget.allocated if i == fatal else int(found.active[i]),
                reserved_unallocated=(int(found.reserved[i]) - int(found.active[i])),
                recovered=i != fatal,
                wording="trace",
                torch=found.torch,
                time_us=int(trace.time_us[i]) if trace.time_us is not None else None,
                traceback=found.snapshot.stacks[int(trace.stack[i])],
            )
        )
    return tuple(events)


def _lost(snapshot: Snapshot) -> Skipped | None:
    """What is said of the end of a damaged file, None of a whole one."""
    return next((note for note in snapshot.skipped if note.what == REST_OF_FILE), None)


def _limits(found: Incident, message: OomEvent | None) -> tuple[Skipped, ...]:
    """What could not be told, and the capture that would tell it."""
    told = []
    if found.device.trace is None:
        if lost := _lost(found.snapshot):
            why, capture = "the snapshot's events were lost with the rest of the file", lost.capture
        else:
            why = "the snapshot has segments but no trace; recording was off, or was stopped before the dump"
            capture = (
                "call torch.cuda.memory._record_memory_history(context='alloc') first, and dump before disabling it"
            )
        told.append(Skipped("the moment of the failure, growth and replay", why, capture))
    if found.truncated:
        told.append(
            Skipped(
                "what happened before the first recorded event",
                f"the recording holds the last {found.lives.events:,} events; older ones were overwritten or not made",
                "raise max_entries, or start recording before the model is built",
            )
        )
    if not found.has_stacks:
        told.append(
            Skipped(
                "whose code it was", "the recording has no stack frames", "record with stacks='python', context='alloc'"
            )
        )
    if found.failed and message is None:
        told.append(
            Skipped(
                "who else was on the card, and its size",
                "a snapshot does not hold them",
                "give the log with the out-of-memory message too: oomctl diagnose snapshot.pickle train.log",
            )
        )
    if found.lives.strays or found.heap.outside:
        told.append(
            Skipped(
                "some blocks",
                f"{found.lives.strays + found.heap.outside} events or blocks contradict the segments and are left out",
            )
        )
    return tuple(told)


def _ahead(device: DeviceSnapshot) -> Callable[[], Requests] | None:
    """Begins to take a long trace apart for the replays, while it is analysed."""
    trace = device.trace
    if trace is None or not bool((trace.action == Action.OOM).any()):
        return None
    from oomctl.allocator import MANY_EVENTS, beside, read_requests

    if not MANY_EVENTS <= len(trace) <= MOST_BESIDE:
        return None
    return beside(lambda: read_requests(device))


def _replayed(
    found: Incident, ahead: Callable[[], Requests] | None, progress: Progress
) -> tuple[WhatIf | None, tuple[Skipped, ...]]:
    """The usual set of settings replayed on the trace, and why not where it could not be done."""
    from oomctl.allocator import what_if, workers_for

    if found.device.trace is None:
        return None, ()
    b = found.budget
    low = high = None
    if b.limit_kind == "fraction_bracket":
        low, high = int(found.reserved[: found.moment.event + 1].max()), b.limit
    elif b.limit_kind == "fraction" and b.limit is not None:
        half = half_digit(b.limit)  # the message rounds it
        low, high = b.limit - half, b.limit + half
    try:
        runs = what_if(
            found.snapshot,
            found.device.index,
            None,
            torch=newest(found.torch),
            limit_low=low,
            limit_high=high,
            until=found.moment.event,
            device_total=b.device_total,
            thorough=_in_question(b, (found.request.size or 0) if found.request else 0),
            processes=workers_for(len(found.device.trace), os.cpu_count()),
            ahead=ahead,
            progress=progress,
        )
    except OomctlError as error:
        return None, (Skipped("what other settings would have done", error.message, error.hint),)
    return runs, ()


def _steps(found: Incident, verdict: Verdict) -> Steps | None:
    """The steps; how long memory lasts is said only of a leak."""
    rows = steps(found)
    if rows is None or verdict.cls == "leak":
        return rows
    return replace(rows, growth_per_step=None, steps_to_oom=None)


def _in_question(b: Budget, need: int) -> bool:
    """Whether idle or rounded-up memory is enough for settings to matter; else a few of them speak for all."""
    idle, limit = (b.reserved or 0) - (b.active or 0), b.limit or 1
    return max(idle, b.rounding or 0) >= SUBSTANTIAL * limit or min(idle, need) >= PROVED * limit


def _fingerprint(verdict: Verdict, ranking: Ranking) -> str:
    """Twelve hexadecimal digits that stay the same for the same failure of the same code: class and first frames."""
    sites = [f"{basename(c.file)}:{c.function}" for c in ranking.culprits[:3]]
    text = "|".join([verdict.cls, verdict.subtype or "", *sorted(sites)])
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
