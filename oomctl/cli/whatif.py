"""`oomctl whatif`."""

from __future__ import annotations

from typing import Annotated

import typer

from oomctl.cli import exits, options
from oomctl.cli.chosen import chosen_size
from oomctl.cli.output import write_stdout
from oomctl.cli.progress import watched
from oomctl.cli.terminal import abilities


def whatif(
    inputs: Annotated[
        list[str], typer.Argument(metavar="SNAPSHOT", help="A snapshot with a trace; a log beside it tells the limit.")
    ],
    *,
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="CONF", help='Replay this setting, "" for the defaults. Repeatable.'),
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option("--limit", metavar="SIZE", help="Let the allocator reserve this much, such as 24GiB."),
    ] = None,
    fit: Annotated[
        bool, typer.Option("--fit", help="Find the smallest limit at which each setting serves the whole trace.")
    ] = False,
    json: options.Json = False,
    device: options.Device = None,
    torch: options.Torch = None,
) -> int:
    """Replay the requests of a snapshot under other allocator settings.

    Without --conf a sensible set is tried. The first line says how exactly the replay reproduces the recording under
    its own settings: that is what the rest may be trusted by.
    """
    from oomctl import api

    with watched() as progress:
        evidence = api.load(*inputs, progress=progress)
        found = api.what_if(
            evidence,
            conf,
            limit=chosen_size(limit, "--limit", "24GiB"),
            fit=fit,
            device=device,
            torch=torch,
            processes=None,
            progress=progress,
        )
    if json:
        write_stdout(api.render_whatif(found, "json"))
        return exits.OK
    able = abilities()
    write_stdout(
        api.render_whatif(found, "terminal", columns=able["width"], color=able["color"], unicode=able["unicode"])
    )
    return exits.OK
