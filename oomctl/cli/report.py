"""What `diagnose`, `summary` and `demo` share: read, conclude, print, write, exit code."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote

from oomctl.cli import exits
from oomctl.cli.chosen import chosen_redaction, chosen_size
from oomctl.cli.output import check_target, one_line, write_file, write_stderr, write_stdout
from oomctl.cli.progress import watched
from oomctl.cli.terminal import abilities
from oomctl.files import staged_folder
from oomctl.units import format_size

if TYPE_CHECKING:
    from oomctl.model.ranks import Digest
    from oomctl.model.report import Report
    from oomctl.progress import Progress

FILE_WIDTH = 100
"""Columns of a report as plain text."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """How to go about many ranks.

    Attributes:
        pattern: Where the rank stands in names, or None.
        layout: Axes of the job, or None.
        jobs: Processes, or None for one a core.
        scheduler: Of a Dask cluster, "local", or None.
        seconds: Longest time for one rank, or None.
        pages: Folder for a page a rank, or None.
    """

    pattern: str | None = None
    layout: str | None = None
    jobs: int | None = None
    scheduler: str | None = None
    seconds: float | None = None
    pages: str | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user asked for.

    Attributes:
        fmt: Format to print.
        files: Files to write as (path, format).
        device: Device ordinal, or None for the one that failed.
        rank: Rank, or None.
        fail_on: Classes that make the exit code 1.
        redact: paths, all, none, or None for the default of each format.
        torch: The version that ran, or None.
        user_roots: Folders of the user's own code.
        whatif: Replay to prove remedies.
        verbose: More rows.
        max_size: Most bytes of one input as typed, or None.
        job: How to go about many ranks; None where the command takes one incident only.
    """

    fmt: str = "terminal"
    files: tuple[tuple[str, str], ...] = ()
    device: int | None = None
    rank: int | None = None
    fail_on: tuple[str, ...] = ()
    redact: str | None = None
    torch: str | None = None
    user_roots: tuple[str, ...] = ()
    whatif: bool = True
    verbose: bool = False
    max_size: str | None = None
    job: Ranks | None = None


def report_on(inputs: Sequence[str], wanted: Wanted) -> int:
    """Diagnoses inputs and delivers the report.

    Returns:
        Exit code: 0, or 1 when the verdict is one that fails the run.

    Raises:
        OomctlError: Inputs cannot be read or outputs cannot be written.
    """
    from oomctl import api

    chosen_redaction(wanted.redact)
    for path, _ in wanted.files:
        check_target(path, inputs)
    job = wanted.job if list(inputs) != ["-"] else None
    if job is not None:
        with staged_folder(job.pages) if job.pages is not None else contextlib.nullcontext() as folder:
            with watched() as progress:
                report, pages = _of_job(inputs, wanted, job, folder, progress)
            code = _delivered(report, wanted) if report is not None else exits.OK
        if pages:
            write_stderr(one_line(f"wrote {pages:,} pages into {job.pages}"))
        if report is not None:
            return code
    with watched() as progress:
        evidence = api.load(*inputs, stdin=_stdin(), max_bytes=chosen_size(wanted.max_size), progress=progress)
        report = api.diagnose(
            evidence,
            device=wanted.device,
            rank=wanted.rank,
            torch=wanted.torch,
            user_roots=wanted.user_roots,
            whatif=wanted.whatif,
            progress=progress,
        )
    return _delivered(report, wanted)


def _of_job(
    inputs: Sequence[str], wanted: Wanted, job: Ranks, folder: str | None, progress: Progress
) -> tuple[Report | None, int]:
    """(the report on many ranks, or None where the inputs are one incident; pages written into the folder)."""
    from oomctl import api

    pages: dict[str, str] = {}

    def each(digest: Digest) -> None:
        if wanted.verbose:
            word = digest.cls.replace("_", " ") or f"not read: {digest.trouble}"
            write_stderr(one_line(f"{digest.name}: {word}"))
        if folder is not None and (report := api.report_of(digest)) is not None:
            name = re.sub(r"[^A-Za-z0-9.-]+", "-", digest.name).strip("-.") or "rank"
            while name in pages.values():
                name += "-x"
            pages[digest.name] = name
            write_file(os.path.join(folder, f"{name}.html"), _rendered(report, "html", wanted, for_file=True))

    report = api.diagnose_job(
        *inputs,
        rank_pattern=job.pattern,
        layout=job.layout,
        rank=wanted.rank,
        device=wanted.device,
        torch=wanted.torch,
        user_roots=wanted.user_roots,
        whatif=wanted.whatif,
        max_bytes=chosen_size(wanted.max_size),
        processes=job.jobs,
        scheduler=job.scheduler,
        seconds=job.seconds,
        each=each,
        progress=progress,
    )
    if report is None or report.job is None or not pages or job.pages is None:
        return report, 0
    there = _relative(job.pages, [path for path, fmt in wanted.files if fmt == "html"])
    rows = tuple(
        replace(row, page=f"{there}{quote(pages[row.name])}.html") if row.name in pages else row
        for row in report.job.rows
    )
    return replace(report, job=replace(report.job, rows=rows)), len(pages)


def _relative(folder: str, pages: Sequence[str]) -> str:
    """The address of a folder as seen from the page that links to it."""
    start = os.path.dirname(os.path.abspath(pages[0])) if pages else os.getcwd()
    return quote(os.path.relpath(folder, start).replace(os.sep, "/")) + "/"


def _delivered(report: Report, wanted: Wanted) -> int:
    write_stdout(_rendered(report, wanted.fmt, wanted))
    for path, fmt in wanted.files:
        size = write_file(path, _rendered(report, fmt, wanted, for_file=True))
        write_stderr(one_line(f"wrote {path} ({format_size(size)})"))
    return exits.FINDING if _fails(report, wanted.fail_on) else exits.OK


def _stdin() -> BinaryIO | None:
    """Standard input as bytes; from a keyboard unbuffered, so that one Ctrl-D ends it."""
    if sys.stdin is None:
        return None
    buffer: BinaryIO = sys.stdin.buffer
    return getattr(buffer, "raw", buffer) if sys.stdin.isatty() else buffer


def _rendered(report: Report, fmt: str, wanted: Wanted, *, for_file: bool = False) -> str:
    from oomctl import api

    shown = {"verbose": wanted.verbose, "redact": wanted.redact}
    if fmt == "text" or (fmt == "terminal" and for_file):
        return api.render(report, "terminal", **shown, width=FILE_WIDTH)
    if fmt == "terminal":
        return api.render(report, fmt, **shown, **abilities())
    return api.render(report, fmt, **shown)


def _fails(report: Report, classes: Sequence[str]) -> bool:
    rows = report.job.rows if report.job is not None else ()
    return any(one.verdict.cls in classes for one in (report, *report.others)) or any(r.cls in classes for r in rows)
