"""`oomctl diagnose`."""

from __future__ import annotations

from typing import Annotated

import typer

from oomctl.cli import options
from oomctl.cli.chosen import chosen_classes, chosen_files, chosen_format
from oomctl.cli.report import Ranks, Wanted, report_on


def diagnose(
    inputs: options.Inputs,
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
    user_root: options.UserRoot = None,
    whatif: Annotated[bool, typer.Option("--whatif/--no-whatif", help="Replay the trace to prove remedies.")] = True,
    max_size: options.MaxSize = None,
    rank_pattern: options.RankPattern = None,
    layout: options.Layout = None,
    pages: options.Pages = None,
    jobs: options.Jobs = None,
    rank_timeout: options.RankTimeout = None,
    scheduler: options.Scheduler = None,
    verbose: options.Verbose = False,
) -> int:
    """Say why the memory ran out, whose line it was and what to change.

    INPUT is a snapshot (.pickle, .json, also compressed), a log, or a directory; a snapshot together with its log is
    one incident, and the log brings the card's size and the neighbours. "-" reads stdin. A report that oomctl wrote
    (JSON or HTML) is read back.

    A folder, a quoted pattern or an archive with the dumps of many ranks is one job: who failed first, who followed,
    and which ranks hold what the others do not. Addresses such as s3:// are read where fsspec reaches them.
    """
    wanted = Wanted(
        fmt=chosen_format(fmt, json),
        files=chosen_files(html, output),
        device=device,
        rank=rank,
        fail_on=chosen_classes(fail_on),
        redact=redact,
        torch=torch,
        user_roots=tuple(user_root or ()),
        whatif=whatif,
        max_size=max_size,
        job=Ranks(rank_pattern, layout, jobs, scheduler, rank_timeout, pages),
        verbose=verbose,
    )
    return report_on(inputs, wanted)
