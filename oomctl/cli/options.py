"""Options that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

from oomctl.cli.chosen import FORMATS

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
