"""`oomctl summary`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from oomctl.cli import options
from oomctl.cli.chosen import chosen_classes, chosen_files, chosen_format
from oomctl.cli.output import write_stderr
from oomctl.cli.report import Wanted, report_on


def summary(
    inputs: Annotated[
        list[str] | None,
        typer.Argument(metavar="INPUT", help="Logs; by default, or as -, what is pasted or piped in."),
    ] = None,
    *,
    fmt: options.Format = None,
    json: options.Json = False,
    html: options.Html = None,
    output: options.Output = None,
    device: options.Device = None,
    rank: options.Rank = None,
    fail_on: options.FailOn = None,
    redact: options.Redact = None,
    torch: options.Torch = None,
    max_size: options.MaxSize = None,
    verbose: options.Verbose = False,
) -> int:
    """The same from pasted text: an error message, memory_summary(), nvidia-smi, a training log.

    Without INPUT it reads what is pasted into the terminal or piped in.
    """
    wanted = Wanted(
        fmt=chosen_format(fmt, json),
        files=chosen_files(html, output),
        device=device,
        rank=rank,
        fail_on=chosen_classes(fail_on),
        redact=redact,
        torch=torch,
        max_size=max_size,
        verbose=verbose,
    )
    if not inputs and sys.stdin is not None and sys.stdin.isatty():
        ends = "Ctrl-Z and Enter" if sys.platform == "win32" else "Ctrl-D"
        write_stderr(f"Paste the log or the error message, then {ends} on a line of its own.")
    return report_on(inputs or ["-"], wanted)
