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
    from oomctl.model.pages import Page
    from oomctl.model.report import Report


def load(
    *paths: str,
    stdin: BinaryIO | None = None,
    max_bytes: int | None = None,
    progress: Progress = silent,
) -> Evidence:
    """Reads inputs into one incident; a snapshot together with its log is one.

    Every file is recognised by its content, and no code from a file is ever run.

    Args:
        paths: Snapshots, logs or earlier reports; "-" reads `stdin`.
        stdin: Where "-" reads from.
        max_bytes: Most bytes of one input after decompression; None is 8 GiB.
        progress: Called with what is being done and the share done, 0 to 1.

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


def report_schema() -> dict[str, Any]:
    """The JSON Schema of the JSON format."""
    from oomctl.report.schema import schema

    return schema()


def explanations() -> tuple[tuple[str, tuple[Page, ...]], ...]:
    """Every page that `oomctl explain` knows, in groups: (heading, pages)."""
    from oomctl.diagnosis import pages, topics
    from oomctl.model.alloc_conf import OPTIONS
    from oomctl.remedies import registry

    return (
        ("Verdicts", pages.PAGES),
        ("Numbers, the allocator, how to", topics.PAGES),
        ("Settings", tuple(option.page for option in OPTIONS)),
        ("Remedies", registry.PAGES),
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
    return from_json(evidence.reports[0])


def _concluded(
    evidence: Evidence, torch: str | None, user_roots: Sequence[str], whatif: bool, progress: Progress
) -> Report:
    from dataclasses import replace

    from oomctl import diagnosis, remedies

    if torch is not None:
        from oomctl.model.common import VersionRange

        version = _version(torch)
        evidence = replace(evidence, torch=VersionRange(version, version))
    conclusions = diagnosis.conclude(evidence, user_roots=tuple(user_roots), progress=progress)
    first, *others = [remedies.advise(one, whatif=whatif, progress=progress) for one in conclusions]
    return replace(first, others=tuple(others))


def _version(text: str) -> tuple[int, int]:
    """(major, minor) of "2.9", "2.9.1" or "2.9.1+cu128"."""
    parts = text.strip().removeprefix("v").split("+")[0].split(".")
    if len(parts) < 2 or not all(part.isdecimal() and len(part) < 4 for part in parts[:2]):
        raise OomctlError(f"no version of torch: {text!r}", "write it as 2.9")
    return int(parts[0]), int(parts[1])


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
