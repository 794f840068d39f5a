"""`oomctl run`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer


def run(
    program: Annotated[str, typer.Argument(metavar="PROGRAM", help="Script to run, or with -m a module.")],
    args: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="The program's own arguments.")] = None,
    *,
    module: Annotated[bool, typer.Option("-m", "--module", help="PROGRAM is a module, as in python -m.")] = False,
    out: Annotated[str, typer.Option("--out", "-d", metavar="DIR", help="Folder for the bundles.")] = ".",
    entries: Annotated[
        int, typer.Option("--entries", metavar="N", min=1, help="Events kept; 200,000 take about 70 MB of host memory.")
    ] = 200_000,
    stacks: Annotated[
        str, typer.Option("--stacks", metavar="KIND", help="python, all (C++ too; slow to write out) or none.")
    ] = "python",
    free_stacks: Annotated[
        bool, typer.Option("--free-stacks", help="Stacks of frees, too; can break activation checkpointing.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", metavar="N", min=0, help="A line on memory every N steps; 0 none.")
    ] = 0,
    alarm: Annotated[bool, typer.Option(help="Warn about memory that grows or idles.")] = True,
    minutes: Annotated[
        float, typer.Option("--minutes", metavar="M", min=0, help="Also write the state out every M minutes.")
    ] = 0.0,
    watermark: Annotated[
        str, typer.Option("--watermark", metavar="SIZE", help="Also once reserved memory passes 90% or 20GiB.")
    ] = "",
    signal: Annotated[
        str, typer.Option("--signal", metavar="NAME", help="Also on this signal, for example USR2.")
    ] = "",
    at_exit: Annotated[bool, typer.Option("--at-exit", help="Also when the program ends.")] = False,
    max_dumps: Annotated[
        int, typer.Option("--max-dumps", metavar="N", min=0, help="Failures kept: the first ones and the latest.")
    ] = 3,
    as_zip: Annotated[bool, typer.Option("--zip", help="Write each bundle as one zip file.")] = False,
    require_cuda: Annotated[
        bool,
        typer.Option("--require-cuda/--no-require-cuda", help="Fail where torch has no device to record."),
    ] = False,
) -> Callable[[], int]:
    """Run a training script unchanged and write down everything at the moment that memory runs out.

    Under a launcher it goes inside: torchrun --nproc-per-node 8 -m oomctl run train.py ARGS. The exception and the
    exit code are the program's own.
    """
    from oomctl.recorder.settings import Settings

    settings = Settings(
        out=out,
        max_entries=entries,
        stacks=stacks,
        context="all" if free_stacks else "alloc",
        max_dumps=max_dumps,
        every_minutes=minutes,
        watermark=watermark,
        at_exit=at_exit,
        signal=signal,
        lines_every=lines,
        alarm=alarm,
        as_zip=as_zip,
        require_device=require_cuda,
    )

    def execute() -> int:
        from oomctl.recorder.execute import execute

        return execute(program, args or [], module=module, settings=settings)

    return execute
