"""The public API: load, diagnose, render. The only place that joins the rooms.

Heavy parts are imported inside the functions, so that importing this module costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from oomctl.errors import OomctlError
from oomctl.progress import Progress, silent

if TYPE_CHECKING:
    from oomctl.model.evidence import Evidence
    from oomctl.model.report import Report

FORMATS = ("terminal", "text", "json", "html", "markdown")
"""Formats that `render` knows; text is terminal without colour."""


def load(
    *paths: str, stdin: BinaryIO | None = None, progress: Progress = silent, max_bytes: int | None = None
) -> Evidence:
    """Reads inputs into one incident; a snapshot together with its log is one.

    No code from a file is ever run.

    Args:
        paths: Snapshots, logs or directories; "-" is stdin.
        stdin: Where "-" reads from.
        progress: Called with what is being done and the share done, 0 to 1.
        max_bytes: Most bytes of one input, after decompression, that are read; None is 8 GiB.

    Returns:
        What the inputs prove.

    Raises:
        OomctlError: An input cannot be read, or holds nothing that bears on memory.
    """
    from oomctl.sources.reading import read_inputs

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

    Raises:
        OomctlError: An input cannot be read, or has no such device or rank.
    """
    raise OomctlError("this build of oomctl cannot diagnose yet")


def render(report: Report, fmt: str = "text", **options: Any) -> str:
    """A report as text in one format.

    Args:
        report: What `diagnose` concluded.
        fmt: One of `FORMATS`.
        options: Options of the format.

    Raises:
        OomctlError: No such format.
    """
    raise OomctlError("this build of oomctl cannot render yet")


def report_schema() -> dict[str, Any]:
    """The JSON Schema of the JSON format."""
    from oomctl.report.schema import schema

    return schema()
