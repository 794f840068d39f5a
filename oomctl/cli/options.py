"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from oomctl.errors import OomctlError

FORMATS: Final = ("terminal", "text", "json", "html", "markdown")
REDACTIONS: Final = ("paths", "all", "none")

Inputs = Annotated[list[str], typer.Argument(metavar="INPUT", help="Snapshots, logs, directories, or - for stdin.")]
Format = Annotated[
    str | None,
    typer.Option("--format", "-f", metavar="FORMAT", help="What to print: " + ", ".join(FORMATS) + "."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, the same as --format json.")]
Html = Annotated[
    str | None, typer.Option("--html", metavar="FILE", help="Also write an HTML report, one offline file.")
]
Output = Annotated[
    list[str] | None,
    typer.Option("--output", "-o", metavar="FILE", help="Also write a file: .html, .json, .md or .txt. Repeatable."),
]
Device = Annotated[int | None, typer.Option("--device", metavar="N", min=0, help="Report on this GPU.")]
Rank = Annotated[int | None, typer.Option("--rank", metavar="N", min=0, help="Report on this rank.")]
FailOn = Annotated[
    list[str] | None,
    typer.Option("--fail-on", metavar="CLASS", help="Exit with 1 when the verdict is this class, or any. Repeatable."),
]
Redact = Annotated[
    str | None,
    typer.Option(
        "--redact",
        metavar="[=paths|all|none]",
        help="Shorten home, user and host names, or hash every name; files are shortened by default.",
    ),
]
Torch = Annotated[
    str | None,
    typer.Option("--torch", metavar="VERSION", help="The torch that ran, such as 2.9, if the input leaves it open."),
]
UserRoot = Annotated[
    list[str] | None, typer.Option("--user-root", metavar="DIR", help="Files below count as your own code. Repeatable.")
]
MaxSize = Annotated[
    str | None, typer.Option("--max-size", metavar="SIZE", help="Most bytes of one input, unpacked; 8 GiB by default.")
]
RankPattern = Annotated[
    str | None,
    typer.Option("--rank-pattern", metavar="NAME", help="Where the rank stands in file names, as dump_{rank}.pickle."),
]
Layout = Annotated[
    str | None,
    typer.Option("--layout", metavar="AXES", help="Axes of the job, fastest first, such as tp=8,dp=16,pp=4."),
]
Pages = Annotated[str | None, typer.Option("--pages", metavar="DIR", help="Write an HTML page for each rank here.")]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", metavar="N", min=1, help="Processes for many ranks; one a core by default."),
]
RankTimeout = Annotated[
    float | None, typer.Option("--rank-timeout", metavar="SECONDS", min=1, help="Give up a rank that takes longer.")
]
Scheduler = Annotated[
    str | None,
    typer.Option("--scheduler", metavar="ADDRESS", help="Read ranks on this Dask cluster; local starts one here."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="More rows in every table.")]


def chosen_format(fmt: str | None, json: bool) -> str:
    """The format to print.

    Raises:
        OomctlError: Unknown, or two different ones were asked for.
    """
    if json:
        if fmt not in (None, "json"):
            raise OomctlError(f"--json and --format {fmt} contradict each other", "leave one of them out")
        return "json"
    if fmt is None:
        return "terminal"
    if fmt not in FORMATS:
        raise OomctlError(f"no format {fmt!r}", "one of " + ", ".join(FORMATS))
    return fmt


def chosen_files(html: str | None, outputs: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """Files to write as (path, format).

    Raises:
        OomctlError: A file's name does not tell its format.
    """
    files = [] if html is None else [(html, "html")]
    if not outputs:
        return tuple(files)
    from oomctl import api

    by_suffix = {".txt": "terminal"} | {end: fmt for fmt, ends in api.formats().items() for end in ends}
    for path in outputs:
        fmt = by_suffix.get(os.path.splitext(path)[1].lower())
        if fmt is None:
            hint = "use a name that ends in " + ", ".join(sorted(by_suffix))
            raise OomctlError(f"cannot tell the format of {path!r} from its name", hint)
        files.append((path, fmt))
    return tuple(files)


def chosen_classes(fail_on: Sequence[str] | None) -> tuple[str, ...]:
    """Classes that fail the run; "any" is every class but no_oom.

    Raises:
        OomctlError: There is no such class.
    """
    if not fail_on:
        return ()
    from oomctl.model.report import CLASSES

    chosen: list[str] = []
    for word in ",".join(fail_on).split(","):
        slug = word.strip().lower().replace("-", "_")
        if slug == "any":
            chosen += [cls for cls in CLASSES if cls != "no_oom"]
        elif slug in CLASSES:
            chosen.append(slug)
        elif slug:
            raise OomctlError(f"--fail-on: no class {word.strip()!r}", "any, or one of " + ", ".join(CLASSES))
    return tuple(chosen)


def chosen_redaction(redact: str | None) -> str | None:
    """How far names are hidden, None for the default of each format.

    Raises:
        OomctlError: Not one of the three.
    """
    if redact is not None and redact not in REDACTIONS:
        raise OomctlError(f"--redact: no way {redact!r}", "one of " + ", ".join(REDACTIONS))
    return redact


def chosen_size(text: str | None, option: str = "--max-size") -> int | None:
    """Bytes of an option such as ``--max-size``.

    Raises:
        OomctlError: Not a size.
    """
    from oomctl.units import parse_size

    if text is None:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise OomctlError(f"{option}: {error}", "write it as 20GiB") from error
