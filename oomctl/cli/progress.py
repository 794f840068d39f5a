"""Progress on stderr, and only where a person watches it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from oomctl.cli.output import one_line
from oomctl.progress import Progress, silent

PATIENCE = 0.4
"""Seconds before anything is shown: a quick run stays quiet."""


@contextlib.contextmanager
def watched() -> Iterator[Progress]:
    """A progress callback that draws one line on stderr when that is a terminal, and removes it at the end."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    bar = Bar(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        console=console,
        transient=True,
    )
    task = bar.add_task("", total=1.0)
    started = time.monotonic()
    shown = False

    def update(what: str, share: float) -> None:
        nonlocal shown
        if not shown and time.monotonic() - started > PATIENCE:
            bar.start()
            shown = True
        bar.update(task, description=one_line(what, 60), completed=min(max(share, 0.0), 1.0))

    try:
        yield update
    finally:
        if shown:
            bar.stop()
