"""`oomctl culprits`."""

from __future__ import annotations

from typing import Annotated

import typer

from oomctl.cli import exits, options
from oomctl.cli.chosen import chosen_redaction, chosen_size
from oomctl.cli.output import write_stdout
from oomctl.cli.progress import watched
from oomctl.cli.terminal import abilities


def culprits(
    snapshot: Annotated[list[str], typer.Argument(metavar="SNAPSHOT", help="A snapshot; with a trace for any moment.")],
    *,
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="oom|peak|end|EVENT", help="The moment; by default the failure, else the peak."),
    ] = None,
    by: Annotated[str, typer.Option("--by", metavar="frame|stack|size", help="What a row is.")] = "frame",
    json: options.Json = False,
    device: options.Device = None,
    user_root: options.UserRoot = None,
    max_size: options.MaxSize = None,
    verbose: options.Verbose = False,
    redact: options.Redact = None,
) -> int:
    """List who holds the live bytes at one moment; the rows sum to what is live.

    Frames are your own innermost ones; what lies below them in libraries is theirs. EVENT is an index of the trace, as
    the timeline shows it.
    """
    from oomctl import api

    chosen_redaction(redact)
    with watched() as progress:
        evidence = api.load(*snapshot, max_bytes=chosen_size(max_size), progress=progress)
        found = api.holdings(evidence, at=at, by=by, device=device, user_roots=tuple(user_root or ()))
    if json:
        write_stdout(api.render_holdings(found, "json", redact=redact))
        return exits.OK
    able = abilities()
    write_stdout(
        api.render_holdings(
            found,
            columns=able["width"],
            color=able["color"],
            unicode=able["unicode"],
            verbose=verbose,
            redact=redact,
        )
    )
    return exits.OK
