"""Many ranks from end to end: gather, read and conclude each where there is room, conclude the job.

Like `oomctl.api` it joins the rooms; what runs on other processes and machines is the function `work` and nothing else.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from oomctl.errors import OomctlError
from oomctl.progress import Progress, silent

if TYPE_CHECKING:
    from oomctl.fleet.base import Fleet
    from oomctl.model.evidence import Evidence
    from oomctl.model.log import OomEvent
    from oomctl.model.ranks import Digest
    from oomctl.model.report import Report
    from oomctl.sources.ranks import RankFiles

_FAILED: Final = frozenset({"fragmentation", "leak", "transient_peak", "capacity", "external", "host_oom"})
_SITED: Final = frozenset({"fragmentation", "leak", "transient_peak", "capacity"})
"""Classes that a line of the program answers for."""
_SHOWN: Final = 8
"""Ranks whose reports go into the one of the job."""


@dataclass(frozen=True, slots=True)
class Task:
    """One rank to conclude.

    Attributes:
        files: Its files.
        max_bytes: Most bytes of one file, unpacked, or None.
        torch: The version that ran, or None.
        user_roots: Folders of the user's own code.
        device: Device ordinal, or None for the one that failed.
        whatif: Replay its trace under other settings.
        events: Failures of this rank that a text of the whole job names.
    """

    files: RankFiles
    max_bytes: int | None = None
    torch: str | None = None
    user_roots: tuple[str, ...] = ()
    device: int | None = None
    whatif: bool = False
    events: tuple[OomEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """How to go about a job.

    Attributes:
        pattern: Where the rank stands in names, or None for the known schemes.
        layout: Sizes of the job's axes, such as "tp=8,dp=16,pp=4", or None.
        rank: Conclude this rank alone.
        max_bytes: Most bytes of one file, unpacked, or None.
        torch: The version that ran, or None.
        user_roots: Folders of the user's own code.
        device: Device ordinal, or None for the one that failed on each rank.
        whatif: Replay the first failure under other settings.
    """

    pattern: str | None = None
    layout: str | None = None
    rank: int | None = None
    max_bytes: int | None = None
    torch: str | None = None
    user_roots: tuple[str, ...] = ()
    device: int | None = None
    whatif: bool = True


def conclude(
    paths: Sequence[str],
    wanted: Wanted,
    fleet: Fleet,
    *,
    each: Callable[[Digest], None] | None = None,
    progress: Progress = silent,
) -> Report | None:
    """Concludes a job.

    Args:
        paths: Folders, patterns, archives, URLs, files.
        wanted: How.
        fleet: Where to work.
        each: Called with each rank's digest as it comes, in no order.
        progress: Called with what is being done and the share done, 0 to 1.

    Returns:
        The report on the rank that matters most, with `Report.job` about all and the other notable ones as `others`;
        None where the paths are the files of one incident.

    Raises:
        OomctlError: Nothing can be found or read.
    """
    from oomctl.sources.rank_names import layout_of, pattern_of
    from oomctl.sources.ranks import find_ranks

    progress("gathering files", 0.0)
    found = find_ranks(paths, pattern_of(wanted.pattern), layout_of(wanted.layout))
    if found is None:
        return None
    from oomctl.diagnosis.ranks import conclude_job, notable
    from oomctl.model.ranks import Digest

    tasks = _tasks(found.ranks, found.shared, wanted)
    if wanted.rank is not None or len(tasks) == 1:
        alone = _alone(tasks, wanted)
        return replace(alone, limits=(*alone.limits, *found.limits))
    digests: list[Digest] = [Digest(t.files.label, t.files.name.rank, trouble="not read") for t in tasks]
    for count, done in enumerate(fleet.run(work, tasks), 1):
        digest = done.result
        if digest is None:
            files = tasks[done.index].files
            digest = Digest(
                files.label, files.name.rank, files.name.host, files.name.stage, _paths(files), trouble=done.trouble
            )
        digests[done.index] = digest
        if each is not None:
            each(digest)
        word = digest.cls.replace("_", " ") or "unreadable"
        progress(f"{count:,} of {len(tasks):,} ranks; {digest.name}: {word}", count / len(tasks))
    job = conclude_job(digests, found.limits)
    shown = notable(job, _SHOWN)
    if not shown:
        first = next((d.trouble for d in digests if d.trouble), "no file")
        raise OomctlError(f"none of the {len(tasks):,} ranks could be read: {first}")
    if wanted.whatif and digests[shown[0]].failed:
        progress(f"replaying {digests[shown[0]].name} under other settings", 0.99)
        for done in fleet.run(work, [replace(tasks[shown[0]], whatif=True)]):
            if done.result is not None and done.result.report:
                digests[shown[0]] = done.result
        job = conclude_job(digests, found.limits)
    reports = [report for i in shown if (report := report_of(digests[i])) is not None]
    return replace(reports[0], job=job, others=tuple(replace(r, others=()) for r in reports[1:]))


def work(task: Task) -> Digest:
    """One rank concluded; whatever is wrong with its files is in the digest."""
    from oomctl import api
    from oomctl.model.ranks import Digest
    from oomctl.sources.ranks import read_rank

    name = task.files.name
    digest = Digest(task.files.label, name.rank, name.host, name.stage, _paths(task.files))
    try:
        evidence = _with_events(read_rank(task.files, task.max_bytes), task.events)
        report = api.diagnose(
            evidence, device=task.device, torch=task.torch, user_roots=task.user_roots, whatif=task.whatif
        )
        return _digest(digest, evidence, report, task)
    except OomctlError as error:
        return replace(digest, trouble=error.message)
    except MemoryError:
        return replace(digest, trouble="needs more memory than the machine gave")
    except Exception as error:  # a bug costs this rank, is said, and never the report
        return replace(digest, trouble=f"a bug in oomctl: {type(error).__name__}: {str(error)[:200]}")


def report_of(digest: Digest) -> Report | None:
    """The whole report of one rank; None where it could not be read."""
    from oomctl.report.json import from_json

    return from_json(json.loads(zlib.decompress(digest.report))) if digest.report else None


def _paths(files: RankFiles) -> tuple[str, ...]:
    return tuple(part.name for part in files.parts)


def _tasks(ranks: Sequence[RankFiles], shared: Sequence[object], wanted: Wanted) -> list[Task]:
    from oomctl.sources.parts import Part
    from oomctl.sources.ranks import read_shared

    told = read_shared([part for part in shared if isinstance(part, Part)], wanted.max_bytes)
    by_rank: dict[int, list[OomEvent]] = {}
    for event in told.oom_events if told is not None else ():
        if event.rank is not None:
            by_rank.setdefault(event.rank, []).append(event)
    return [
        Task(
            files,
            wanted.max_bytes,
            wanted.torch,
            wanted.user_roots,
            wanted.device,
            events=tuple(by_rank.get(files.name.rank, ())) if files.name.rank is not None else (),
        )
        for files in ranks
    ]


def _alone(tasks: Sequence[Task], wanted: Wanted) -> Report:
    chosen = [task for task in tasks if wanted.rank in (None, task.files.name.rank)]
    if not chosen:
        there = ", ".join(task.files.label for task in tasks[:8]) + (" ..." if len(tasks) > 8 else "")
        raise OomctlError(f"nothing about rank {wanted.rank} in these inputs", f"there is: {there}")
    digest = work(replace(chosen[0], whatif=wanted.whatif))
    report = report_of(digest)
    if report is None:
        raise OomctlError(f"{digest.name}: {digest.trouble}")
    return report


def _with_events(evidence: Evidence, events: tuple[OomEvent, ...]) -> Evidence:
    """A rank's evidence with what the job's log says of it, where its own texts say nothing."""
    if not events or evidence.oom_events:
        return evidence
    return replace(evidence, oom_events=tuple(replace(event, source=0) for event in events))


def _digest(digest: Digest, evidence: Evidence, report: Report, task: Task) -> Digest:
    from oomctl.analysis.frames import label
    from oomctl.analysis.rank_digest import held_at
    from oomctl.model.stacks import Frame
    from oomctl.report.json import compact
    from oomctl.report.thin import FULL, thin
    from oomctl.sources.peers import was_stopped
    from oomctl.sources.reading import NOTHING

    verdict, budget = report.verdict, report.budget
    failed = verdict.cls in _FAILED or (
        verdict.cls == "uncertain" and any(not event.recovered for event in report.oom_events)
    )
    chosen = next(
        ((s, d) for s in evidence.snapshots for d in s.devices if d.index == report.device.index),
        next(((s, d) for s in evidence.snapshots for d in s.devices), None),
    )
    # At the peak, for that is a moment that every rank has, failed or not.
    held, rest, active = ((), 0, None) if chosen is None else held_at(*chosen, "peak", task.user_roots)
    if budget is not None and budget.active is not None:
        active = budget.active
    culprit = next(iter(report.culprits), None)
    thinned, _ = thin(replace(report, others=()), FULL)
    whole = replace(thinned, device=replace(report.device, rank=digest.rank))
    skipped = (*evidence.skipped, *(s for snapshot in evidence.snapshots for s in snapshot.skipped))
    troubles = [s.reason for s in skipped if NOTHING not in s.reason]
    return replace(
        digest,
        cls=verdict.cls,
        subtype=verdict.subtype,
        code=verdict.code,
        confidence=verdict.confidence,
        headline=verdict.headline,
        failed=failed,
        stopped=not failed and was_stopped(task.files.parts),
        time_us=_time_of_failure(evidence, report) if failed else None,
        active=active,
        reserved=None if budget is None else budget.reserved,
        peak=max(report.timeline.active) if report.timeline is not None and report.timeline.active else active,
        held=held,
        rest=rest,
        site=label(Frame(culprit.file, culprit.line, culprit.function)) if culprit and verdict.cls in _SITED else "",
        trouble="; ".join(troubles[:2]),
        report=zlib.compress(compact(whole).encode("ascii")),
    )


def _time_of_failure(evidence: Evidence, report: Report) -> int | None:
    """Microseconds since the epoch: from the trace of the device, else from what was recorded beside it."""
    for snapshot in evidence.snapshots:
        for device in snapshot.devices:
            trace = device.trace
            if trace is None or trace.time_us is None or not trace.device_free:
                continue
            if device.index == report.device.index or report.device.index is None:
                return int(trace.time_us[max(trace.device_free)])
    return next((e.time_us for e in reversed(evidence.oom_events) if e.time_us is not None and not e.recovered), None)
