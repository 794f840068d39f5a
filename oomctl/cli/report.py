"""What `diagnose`, `summary` and `demo` share: read, conclude, print, write, exit code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oomctl.cli import exits
from oomctl.cli.options import chosen_redaction
from oomctl.cli.output import write_file, write_stderr, write_stdout
from oomctl.cli.progress import watched

if TYPE_CHECKING:
    from oomctl.model.report import Report


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


def report_on(inputs: Sequence[str], wanted: Wanted) -> int:
    """Diagnoses inputs and delivers the report.

    Returns:
        Exit code: 0, or 1 when the verdict is one that fails the run.

    Raises:
        OomctlError: Inputs cannot be read or outputs cannot be written.
    """
    from oomctl import api

    chosen_redaction(wanted.redact)
    with watched() as progress:
        report = api.diagnose(
            list(inputs),
            device=wanted.device,
            rank=wanted.rank,
            torch=wanted.torch,
            user_roots=wanted.user_roots,
            whatif=wanted.whatif,
            progress=progress,
        )
    for path, fmt in wanted.files:
        text = _rendered(report, fmt, wanted)
        write_file(path, text)
        write_stderr(f"wrote {path} ({len(text.encode('utf-8', 'replace')) / 1024:.0f} KiB)")
    write_stdout(_rendered(report, wanted.fmt, wanted))
    return exits.FINDING if _fails(report, wanted.fail_on) else exits.OK


def _rendered(report: Report, fmt: str, wanted: Wanted) -> str:
    from oomctl import api

    return api.render(report, fmt, verbose=wanted.verbose, redact=wanted.redact)


def _fails(report: Report, classes: Sequence[str]) -> bool:
    return any(one.verdict.cls in classes for one in (report, *report.others))
