"""The public API: load, diagnose, render. The only place that joins the rooms.

Heavy parts are imported inside the functions, so that importing this module costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from oomctl.errors import OomctlError
from oomctl.model.notebook import show_with
from oomctl.progress import Progress, silent

if TYPE_CHECKING:
    from oomctl.diagnosis.diff import Run
    from oomctl.model.diff import Diff
    from oomctl.model.evidence import Evidence
    from oomctl.model.holdings import Holdings
    from oomctl.model.pages import Page
    from oomctl.model.ranks import Digest
    from oomctl.model.report import Report, WhatIf, WhatIfRun
    from oomctl.model.snapshot import DeviceSnapshot, Snapshot


def load(
    *paths: str,
    stdin: BinaryIO | None = None,
    max_bytes: int | None = None,
    progress: Progress = silent,
) -> Evidence:
    """Reads inputs into one incident; a snapshot together with its log is one.

    Every file is recognised by its content, and no code from a file is ever run.

    Args:
        paths: Snapshots, logs, earlier reports, or a folder or fsspec address of one incident; "-" reads `stdin`.
        stdin: Where "-" reads from.
        max_bytes: Most bytes of one input after decompression; None is 8 GiB.
        progress: Called with what is being done and the share done, 0 to 1.

    Returns:
        What the inputs prove.

    Raises:
        OomctlError: An input cannot be read, or holds nothing that bears on memory.
    """
    from oomctl.sources.ranks import incident_parts
    from oomctl.sources.reading import read_inputs, read_parts

    parts = incident_parts(paths)
    if parts is not None:
        if "-" in paths:
            raise OomctlError(
                "a folder or an address and the standard input cannot be read as one incident",
                "give the file instead of -",
            )
        return read_parts([(part.name, part.opened) for part in parts], progress=progress, max_bytes=max_bytes)
    return read_inputs(paths, stdin=stdin, progress=progress, max_bytes=max_bytes)


def diagnose(
    incident: Evidence | str | Sequence[str],
    *,
    device: int | None = None,
    rank: int | None = None,
    torch: str | None = None,
    user_roots: Sequence[str] = (),
    whatif: bool = True,
    progress: Progress = silent,
) -> Report:
    """Concludes: the verdict with its evidence, the books, the culprits, the remedies and what could not be told.

    Args:
        incident: Evidence from `load`, or the path or paths to load.
        device: Report on this device ordinal; by default on the one that failed.
        rank: Report on this rank.
        torch: The version that ran, such as "2.9", where the inputs leave it open.
        user_roots: Folders whose files count as the user's own code in stacks.
        whatif: Replay the trace under other settings to prove remedies.
        progress: Called with what is being done and the share done, 0 to 1.

    Returns:
        The report on one device; those on the others are its `others`.

    Raises:
        OomctlError: An input cannot be read, or has no such device or rank.
    """
    if isinstance(incident, str):
        incident = load(incident, progress=progress)
    elif isinstance(incident, Sequence):
        incident = load(*incident, progress=progress)
    report = _read_back(incident) if incident.reports else _concluded(incident, torch, user_roots, whatif, progress)
    return _focused(report, device, rank)


def diagnose_job(
    *paths: str,
    rank_pattern: str | None = None,
    layout: str | None = None,
    rank: int | None = None,
    device: int | None = None,
    torch: str | None = None,
    user_roots: Sequence[str] = (),
    whatif: bool = True,
    max_bytes: int | None = None,
    processes: int | None = None,
    scheduler: str | None = None,
    seconds: float | None = None,
    each: Callable[[Digest], None] | None = None,
    progress: Progress = silent,
) -> Report | None:
    """Concludes many ranks as one job: who failed first, who followed, who stands apart and by which lines.

    Args:
        paths: Folders, patterns, archives, addresses that fsspec knows, files.
        rank_pattern: Where the rank stands in names: "dump_{rank}_*.pickle" or a regular expression with a group
            named rank; None knows the usual schemes.
        layout: Sizes of the job's axes, the fastest first, such as "tp=8,dp=16,pp=4".
        rank: Conclude this rank alone.
        device: Device ordinal; by default the one that failed on each rank.
        torch: The version that ran, such as "2.9", where the inputs leave it open.
        user_roots: Folders whose files count as the user's own code in stacks.
        whatif: Replay the first failure under other settings.
        max_bytes: Most bytes of one file, unpacked; None is 8 GiB.
        processes: Worker processes; None is one a core. A script that is to have any calls this under
            ``if __name__ == "__main__":``, for each of them imports the script.
        scheduler: Address of a Dask scheduler, or "local" for a cluster of this machine.
        seconds: Longest time for one rank.
        each: Called with each rank's digest as it comes; `report_of` makes a report of it.
        progress: Called with what is being done and the share done, 0 to 1.

    Returns:
        The report on the rank that matters most, with `Report.job` about all; None where the paths are the files of one
        incident, which `load` and `diagnose` take.

    Raises:
        OomctlError: Nothing can be found or read, or there is no such cluster.
    """
    import os

    from oomctl import ranks
    from oomctl.fleet.base import Fleet
    from oomctl.fleet.cluster import Cluster
    from oomctl.fleet.processes import Processes

    count = processes or os.cpu_count() or 1
    fleet: Fleet = Cluster(scheduler, count, seconds) if scheduler else Processes(count, seconds)
    wanted = ranks.Wanted(rank_pattern, layout, rank, max_bytes, torch, tuple(user_roots), device, whatif)
    return ranks.conclude(paths, wanted, fleet, each=each, progress=progress)


def report_of(digest: Digest) -> Report | None:
    """The whole report of one rank of a job; None where its files could not be read."""
    from oomctl import ranks

    return ranks.report_of(digest)


def render(report: Report, fmt: str = "terminal", **options: Any) -> str:
    """A report as text in one format.

    Args:
        report: What `diagnose` concluded.
        fmt: "terminal", "json", "html" or "markdown".
        options: Fields of `oomctl.report.base.Options`, such as `width` in columns or `redact`.

    Returns:
        Text that ends in a newline.

    Raises:
        OomctlError: No such format.
    """
    from oomctl import report as reports

    return reports.render(report, fmt, **options)


def what_if(
    incident: Evidence | Snapshot | str,
    confs: Sequence[str] | None = None,
    *,
    limit: int | None = None,
    fit: bool = False,
    device: int | None = None,
    torch: str | None = None,
    processes: int | None = 1,
    progress: Progress = silent,
) -> WhatIf:
    """Replays the trace of a snapshot under other allocator settings.

    Args:
        incident: A snapshot, its path, or evidence that holds one (a log beside it tells the limit).
        confs: Settings such as "expandable_segments:True", "" for the defaults; None tries a sensible set.
        limit: Bytes that the allocator may reserve, as a memory fraction would cap it; None takes what the inputs tell.
        fit: Also find the smallest limit at which every request is served.
        device: Device ordinal; by default the one that failed, else the one with the longest trace.
        torch: The version to model, such as "2.9"; by default the one that wrote the snapshot.
        processes: Worker processes; None is one a core for a long trace.
        progress: Called with what is being done and the share done, 0 to 1.

    Returns:
        One run a setting, the best first, with how well the replay reproduces the recording.

    Raises:
        OomctlError: There is no trace to replay.
    """
    from oomctl import allocator
    from oomctl.model.evidence import Evidence

    if isinstance(incident, str):
        incident = load(incident, progress=progress)
    evidence = incident if isinstance(incident, Evidence) else Evidence(snapshots=(incident,))
    snapshot, index = _replayable(evidence, device)
    version = _version(torch) if torch is not None else None
    known = snapshot.torch & evidence.torch
    if processes is None:  # a search for limits replays each setting a dozen times
        import os

        events = max((len(d.trace) for d in snapshot.devices if d.index == index and d.trace is not None), default=0)
        processes = allocator.workers_for(events * (10 if fit else 1), os.cpu_count())
    low, high, total = _limit_in_text(evidence) if limit is None else (None, None, None)
    return allocator.what_if(
        snapshot,
        index,
        confs,
        torch=version or known.high or known.low or (2, 11),
        limit=limit,
        limit_low=low,
        limit_high=high,
        device_total=total,
        fit=fit,
        processes=processes,
        progress=progress,
    )


def replay(
    snapshot: Evidence | Snapshot | str,
    conf: str = "",
    *,
    limit: int | None = None,
    device: int | None = None,
    torch: str | None = None,
) -> WhatIfRun:
    """Replays the trace of a snapshot under one allocator setting.

    Args:
        snapshot: A snapshot, its path, or evidence that holds one.
        conf: For example "expandable_segments:True"; "" is the defaults.
        limit: Bytes that the allocator may reserve; None takes what the inputs tell.
        device: Device ordinal; by default the one that failed.
        torch: The version to model, such as "2.9".

    Raises:
        OomctlError: There is no trace to replay.
    """
    return what_if(snapshot, [conf], limit=limit, device=device, torch=torch).runs[0]


def render_whatif(whatif: WhatIf, fmt: str = "terminal", **options: Any) -> str:
    """What-if results as text: "terminal" (options columns, color, unicode) or "json"."""
    from oomctl.report.whatif import render_whatif as render_page

    return render_page(whatif, fmt, **options)


def holdings(
    incident: Evidence | Snapshot | str,
    *,
    at: str | None = None,
    by: str = "frame",
    device: int | None = None,
    user_roots: Sequence[str] = (),
    progress: Progress = silent,
) -> Holdings:
    """Who holds the live bytes of one device at one moment; the rows sum to the active bytes.

    Args:
        incident: A snapshot, its path, or evidence that holds one.
        at: "oom", "peak", "end" or the index of an event; None is the failure if there is one, else the peak.
        by: "frame" (the innermost one of the user's), "stack" or "size".
        device: Device ordinal; by default the one that failed, else the one with the longest trace.
        user_roots: Folders whose files count as the user's own code in stacks.
        progress: Called with what is being done and the share done, 0 to 1.

    Raises:
        OomctlError: There is no snapshot, no such device or no such moment.
    """
    from oomctl.analysis import holdings as analysis
    from oomctl.model.evidence import Evidence

    if isinstance(incident, str):
        incident = load(incident, progress=progress)
    evidence = incident if isinstance(incident, Evidence) else Evidence(snapshots=(incident,))
    snapshot, chosen = _chosen_device(evidence, device)
    failed = chosen.trace is not None and len(chosen.trace.device_free) > 0
    return analysis.holdings(
        snapshot,
        chosen,
        at=at or ("oom" if failed else "peak"),
        by=by,
        inputs=evidence.inputs,
        user_roots=tuple(user_roots),
    )


def export(
    incident: Evidence | Snapshot | str,
    to: str,
    *,
    fmt: str | None = None,
    table: str = "",
    at: str | None = None,
    last: int | None = None,
    around: str | None = None,
    reduce: bool = False,
    limit: int | None = None,
    device: int | None = None,
    progress: Progress = silent,
) -> tuple[str, ...]:
    """Writes a snapshot in the form of another tool, whole or not at all.

    Args:
        incident: A snapshot, its path, or evidence that holds one.
        to: File to write; its ending tells the format: .csv, .json, .jsonl, .parquet, .feather, .sqlite, .trace.json,
            .folded, .speedscope.json, .pickle or .py.
        fmt: The format, whatever the file is called.
        table: One of `oomctl.tables.COLUMNS`, for formats that hold one table.
        at: "oom", "peak", "leak", "end" or the index of an event.
        last: Events that a snapshot keeps, the last ones.
        around: A snapshot keeps the events around this moment: "oom", "peak" or the index of an event.
        reduce: A script that reproduces keeps only the requests that the failure needs.
        limit: Bytes that the allocator could reserve, where the trace leaves it open.
        device: Device ordinal; by default the one that failed, else the one with the longest trace.
        progress: Called with what is being done and the share done, 0 to 1.

    Returns:
        Remarks: what was left out, how it was checked.

    Raises:
        OomctlError: The input lacks what the format shows, or the file cannot be written.
    """
    from oomctl.exports.base import Job
    from oomctl.exports.registry import format_of
    from oomctl.files import staged
    from oomctl.model.evidence import Evidence

    if isinstance(incident, str):
        incident = load(incident, progress=progress)
    evidence = incident if isinstance(incident, Evidence) else Evidence(snapshots=(incident,))
    chosen = format_of(to, fmt)
    job = Job(
        evidence,
        device,
        table,
        at,
        last,
        around,
        reduce,
        limit,
        judge=_class_of,
        whatif=lambda: what_if(evidence, limit=limit, device=device, progress=progress),
        progress=progress,
    )
    with staged(to) as path:
        return chosen.write(job, path)


def _class_of(evidence: Evidence) -> str:
    from oomctl import diagnosis

    return diagnosis.conclude(evidence, whatif=False)[0].report.verdict.cls


def render_holdings(found: Holdings, fmt: str = "terminal", **options: Any) -> str:
    """Holdings as text: "terminal" (options columns, color, unicode, verbose) or "json"; redact as for `render`."""
    from oomctl.report.holdings import render_holdings as render_page

    return render_page(found, fmt, **options)


def diff(
    before: Evidence | Snapshot | Report | str,
    after: Evidence | Snapshot | Report | str,
    *,
    at: str = "peak",
    by: str | None = None,
    device: int | None = None,
    fail_if_grown: str | None = None,
    user_roots: Sequence[str] = (),
    sources: tuple[str | None, str | None] = (None, None),
    progress: Progress = silent,
) -> Diff:
    """What changed in memory from one run to another; the rows sum to the change.

    Args:
        before: A snapshot, its path, evidence that holds one, or a saved report.
        after: The same of the other run.
        at: "peak" of allocated memory, "oom" or "end".
        by: "stack", "frame" or "size"; None is stack where there are any.
        device: Device ordinal; by default the one that failed, else the one with the longest trace.
        fail_if_grown: What the allocated peak may grow by, such as "2%" or "200MiB"; sets `Diff.guard`.
        user_roots: Folders whose files count as the user's own code in stacks.
        sources: Checkouts that either run was made from; lines are then matched by their text first.
        progress: Called with what is being done and the share done, 0 to 1.

    Raises:
        OomctlError: An input cannot be read or compared, or has no such moment.
    """
    from dataclasses import replace

    from oomctl.diagnosis.diff import compare
    from oomctl.sources.code import SourceTree

    runs = [_run(one, device, progress) for one in (before, after)]
    runs = [
        run if root is None else replace(run, text_of=SourceTree(root).text_of)
        for run, root in zip(runs, sources, strict=True)
    ]
    return compare(runs[0], runs[1], at=at, by=by, tolerance=fail_if_grown, user_roots=tuple(user_roots))


def render_diff(found: Diff, fmt: str = "terminal", **options: Any) -> str:
    """A comparison as text: "terminal", "text", "json", "html" or "markdown"; options as for `render`."""
    from oomctl.report.base import Options
    from oomctl.report.diff import render_diff as render_page

    return render_page(found, fmt, Options(**{key: value for key, value in options.items() if value is not None}))


def _run(given: Evidence | Snapshot | Report | str, device: int | None, progress: Progress) -> Run:
    from oomctl.diagnosis.diff import Run
    from oomctl.model.evidence import Evidence
    from oomctl.model.report import Report

    if isinstance(given, Report):
        return Run(given.inputs, report=_focused(given, device, None))
    if isinstance(given, str):
        given = load(given, progress=progress)
    evidence = given if isinstance(given, Evidence) else Evidence(snapshots=(given,))
    if evidence.reports and not evidence.snapshots:
        return Run(evidence.inputs, report=_focused(_read_back(evidence), device, None))
    return Run(evidence.inputs, _chosen_device(evidence, device), conf=evidence.conf)


def _chosen_device(evidence: Evidence, device: int | None) -> tuple[Snapshot, DeviceSnapshot]:
    """A snapshot and the device asked for: else one that failed, else the longest trace, else the most reserved."""
    from oomctl.analysis.choose import chosen_device

    return chosen_device(evidence.snapshots, device)


def _replayable(evidence: Evidence, device: int | None) -> tuple[Snapshot, int]:
    """The snapshot and device to replay: the one asked for, else one that failed, else the longest trace."""
    found = [
        (len(d.trace.device_free) > 0, len(d.trace), snapshot, d.index)
        for snapshot in evidence.snapshots
        for d in snapshot.devices
        if d.trace is not None and device in (None, d.index)
    ]
    if not found:
        from oomctl.model.snapshot import REST_OF_FILE

        where = "" if device is None else f" for GPU {device}"
        lost = next((n for s in evidence.snapshots for n in s.skipped if n.what == REST_OF_FILE), None)
        if lost is not None:
            raise OomctlError(f"there is no whole trace to replay{where}: {lost.reason}", lost.capture)
        raise OomctlError(
            f"there is no trace to replay{where}: a snapshot with recorded events is needed",
            "call torch.cuda.memory._record_memory_history() when the program starts, and dump before turning it off",
        )
    best = max(found, key=lambda row: row[:2])
    return best[2], best[3]


def _limit_in_text(evidence: Evidence) -> tuple[int | None, int | None, int | None]:
    """(least, most, card): bounds of the memory fraction's cap and the card's size, from rounded figures in a log."""
    from oomctl.units import GIB, MIB

    allowed = next((e.allowed for e in reversed(evidence.oom_events) if e.allowed and e.line), None)
    total = next((e.total_capacity for e in reversed(evidence.oom_events) if e.total_capacity and e.line), None)

    def slack(value: int) -> int:  # two decimals are printed
        return (GIB if value > GIB else MIB) // 200 + 1

    low, high = (None, None) if allowed is None else (allowed - slack(allowed), allowed + slack(allowed))
    return low, high, None if total is None else total + slack(total)


def report_schema() -> dict[str, Any]:
    """The JSON Schema of the JSON format."""
    from oomctl.report.schema import schema

    return schema()


def holdings_schema() -> dict[str, Any]:
    """The JSON Schema of `oomctl culprits --json`."""
    from oomctl.model.holdings import Holdings
    from oomctl.report.holdings import SCHEMA
    from oomctl.report.schema import schema_of

    return schema_of(Holdings, SCHEMA, "Who holds the live bytes at one moment.")


def whatif_schema() -> dict[str, Any]:
    """The JSON Schema of `oomctl whatif --json`."""
    from oomctl.model.report import WhatIf
    from oomctl.report.schema import schema_of
    from oomctl.report.whatif import SCHEMA

    return schema_of(WhatIf, SCHEMA, "One trace replayed under several settings.")


def diff_schema() -> dict[str, Any]:
    """The JSON Schema of `oomctl diff --json`."""
    from oomctl.model.diff import Diff
    from oomctl.report.diff import SCHEMA
    from oomctl.report.schema import schema_of

    return schema_of(Diff, SCHEMA, "Two runs compared.")


def explanations() -> tuple[tuple[str, tuple[Page, ...]], ...]:
    """Every page that `oomctl explain` knows, in groups: (heading, pages)."""
    from oomctl._resources import skill
    from oomctl.diagnosis import pages, topics
    from oomctl.model.alloc_conf import OPTIONS
    from oomctl.model.pages import guide_page
    from oomctl.remedies import registry

    return (
        ("Verdicts", pages.PAGES),
        ("Numbers, the allocator, how to", topics.PAGES),
        ("Rows of memory_summary()", topics.ROW_PAGES),
        ("Settings", tuple(option.page for option in OPTIONS)),
        ("Remedies", registry.PAGES),
        ("For programs", (guide_page(skill()),)),
    )


def formats() -> dict[str, tuple[str, ...]]:
    """The formats that `render` knows, each with the endings of files that are written in it."""
    from oomctl.report.registry import RENDERERS

    return {renderer.name: renderer.suffixes for renderer in RENDERERS}


def _read_back(evidence: Evidence) -> Report:
    """The report that an earlier run wrote; it stands alone, for it is a conclusion and no evidence."""
    from oomctl.report.json import from_json

    if len(evidence.reports) != 1 or len(evidence.inputs) != 1:
        raise OomctlError(
            "a report of oomctl is read back alone, not together with other inputs",
            "diagnose the snapshot and the log that it was made from",
        )
    try:
        return from_json(evidence.reports[0])
    except OomctlError as error:
        raise OomctlError(f"{evidence.inputs[0].path}: {error.message}", error.hint) from error


def _concluded(
    evidence: Evidence, torch: str | None, user_roots: Sequence[str], whatif: bool, progress: Progress
) -> Report:
    from dataclasses import replace

    from oomctl import diagnosis, remedies

    if torch is not None:
        from oomctl.model.common import VersionRange

        version = _version(torch)
        evidence = replace(evidence, torch=VersionRange(version, version))
    conclusions = diagnosis.conclude(evidence, user_roots=tuple(user_roots), whatif=whatif, progress=progress)
    first, *others = [_with_code(remedies.advise(one), user_roots) for one in conclusions]
    return replace(first, others=tuple(others))


def _with_code(report: Report, user_roots: Sequence[str]) -> Report:
    """The report with the text of its culprits' lines, where their files are at hand."""
    from dataclasses import replace

    from oomctl.sources.code_lines import code_line

    culprits = tuple(
        c if c.source is not None else replace(c, source=code_line(c.file, c.line, user_roots)) for c in report.culprits
    )
    return replace(report, culprits=culprits)


def _version(text: str) -> tuple[int, int]:
    """(major, minor) of a version that the user typed."""
    from oomctl.model.common import parse_version

    try:
        return parse_version(text)
    except ValueError:
        raise OomctlError(f"no version of torch: {text!r}", "write it as 2.9") from None


def _focused(report: Report, device: int | None, rank: int | None) -> Report:
    """The same reports with the one in front that is about a device and rank."""
    from dataclasses import replace

    if device is None and rank is None:
        return report
    every = (report, *report.others)
    chosen = [
        one
        for one in every
        if (device is None or one.device.index == device) and (rank is None or one.device.rank == rank)
    ]
    if not chosen:
        asked = " and ".join(
            [*([f"GPU {device}"] if device is not None else []), *([f"rank {rank}"] if rank is not None else [])]
        )
        raise OomctlError(f"nothing about {asked} in these inputs", "there is: " + ", ".join(map(_name, every)))
    first = chosen[0]
    others = tuple(replace(one, others=()) for one in every if one is not first)
    return replace(first, others=others)


def _name(report: Report) -> str:
    device = report.device
    where = "a GPU without a number" if device.index is None else f"GPU {device.index}"
    return where if device.rank is None else f"{where} of rank {device.rank}"


def _report_in_notebook(report: Report) -> str:
    from oomctl.report.notebook import report_html

    return report_html(report, render(report, "html"))


def _snapshot_in_notebook(snapshot: Snapshot) -> str:
    from oomctl.report.notebook import snapshot_html

    return snapshot_html(snapshot)


def _evidence_in_notebook(evidence: Evidence) -> str:
    from oomctl.report.notebook import evidence_html

    return evidence_html(evidence)


show_with("Report", _report_in_notebook)
show_with("Snapshot", _snapshot_in_notebook)
show_with("Evidence", _evidence_in_notebook)
