"""`oomctl export`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from oomctl.cli import exits, options
from oomctl.cli.chosen import chosen_size
from oomctl.cli.output import check_target, one_line, write_stderr
from oomctl.cli.progress import watched


def export(
    inputs: Annotated[
        list[str], typer.Argument(metavar="SNAPSHOT", help="A snapshot; a log beside it tells the limit.")
    ],
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FILE",
            help="What to write: .csv, .json, .jsonl, .parquet, .feather, .sqlite, .trace.json, .folded, "
            ".speedscope.json, .pickle or .py.",
        ),
    ],
    fmt: Annotated[
        str | None, typer.Option("--format", "-f", metavar="FORMAT", help="The format, whatever the file is called.")
    ] = None,
    table: Annotated[
        str,
        typer.Option(
            "--table",
            metavar="TABLE",
            help="events, blocks, segments, stacks, culprits, timeline or whatif; by default the events.",
        ),
    ] = "",
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="oom|peak|leak|end|EVENT", help="The moment of blocks, culprits and flames."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--last", metavar="N", min=1, help="A .pickle keeps this many events, the last ones.")
    ] = None,
    around: Annotated[
        str | None,
        typer.Option("--around", metavar="oom|peak|EVENT", help="A .pickle keeps the events around this moment."),
    ] = None,
    reduce: Annotated[
        bool, typer.Option("--reduce", help="A .py keeps only the requests that the failure needs.")
    ] = False,
    limit: Annotated[
        str | None,
        typer.Option("--limit", metavar="SIZE", help="What the allocator could reserve, if the trace leaves it open."),
    ] = None,
    device: options.Device = None,
    max_size: options.MaxSize = None,
) -> int:
    """Write a snapshot in the form of another tool.

    Tables for pandas, SQL and spreadsheets; a trace for ui.perfetto.dev; flame graphs; a smaller snapshot that
    pytorch.org/memory_viz opens; a script that makes the same requests of a GPU and fails the same way.
    """
    from oomctl import api

    check_target(to, [name for name in inputs if name != "-"])
    with watched() as progress:
        evidence = api.load(*inputs, max_bytes=chosen_size(max_size), progress=progress)
        remarks = api.export(
            evidence,
            to,
            fmt=fmt,
            table=table,
            at=at,
            last=last,
            around=around,
            reduce=reduce,
            limit=chosen_size(limit, "--limit"),
            device=device,
            progress=progress,
        )
    write_stderr(one_line(f"wrote {to}: {os.path.getsize(to):,} bytes"))
    for remark in remarks:
        write_stderr(one_line(remark))
    return exits.OK
