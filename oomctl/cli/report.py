"""What `diagnose`, `summary` and `demo` share: read, conclude, print, write, exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from oomctl.cli import exits
from oomctl.cli.options import chosen_redaction, chosen_size
from oomctl.cli.output import check_target, one_line, write_file, write_stderr, write_stdout
from oomctl.cli.progress import watched
from oomctl.cli.terminal import abilities
from oomctl.units import format_size

if TYPE_CHECKING:
    from oomctl.model.report import Report

FILE_WIDTH = 100
"""Columns of a report as plain text."""


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
    return any(one.verdict.cls in classes for one in (report, *report.others))
