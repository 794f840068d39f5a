"""`oomctl diff`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from oomctl.cli import exits, options
from oomctl.cli.chosen import chosen_files, chosen_format, chosen_redaction, chosen_size
from oomctl.cli.output import check_target, one_line, write_file, write_stderr, write_stdout
from oomctl.cli.progress import watched
from oomctl.cli.report import FILE_WIDTH
from oomctl.cli.terminal import abilities
from oomctl.units import format_size

if TYPE_CHECKING:
    from oomctl.model.diff import Diff


def diff(
    before: Annotated[str, typer.Argument(metavar="BEFORE", help="A snapshot, or a report that oomctl saved.")],
    after: Annotated[str, typer.Argument(metavar="AFTER", help="The same of the other run.")],
    *,
    at: Annotated[
        str, typer.Option("--at", metavar="peak|oom|end", help="The moment of both: most allocated, failure, end.")
    ] = "peak",
    by: Annotated[
        str | None, typer.Option("--by", metavar="stack|frame|size", help="What a row is; stack by default.")
    ] = None,
    fail_if_grown: Annotated[
        str | None,
        typer.Option(
            "--fail-if-grown",
            metavar="2%|200MiB",
            help="Exit with 1 when the allocated peak grew by more, or the run after ran out of memory.",
        ),
    ] = None,
    source_before: Annotated[
        str | None,
        typer.Option("--source-before", metavar="DIR", help="The checkout of BEFORE: lines are matched by their text."),
    ] = None,
    source_after: Annotated[
        str | None, typer.Option("--source-after", metavar="DIR", help="The checkout of AFTER.")
    ] = None,
    fmt: options.Format = None,
    json: options.Json = False,
    html: options.Html = None,
    output: options.Output = None,
    device: options.Device = None,
    redact: options.Redact = None,
    user_root: options.UserRoot = None,
    max_size: options.MaxSize = None,
    verbose: options.Verbose = False,
) -> int:
    """Compare two runs: which place costs how much more.

    The rows sum to the change of the allocated peak, to the byte. A place is recognised by its function and by what it
    calls, so that edits above a line do not matter; where both checkouts are given, by its text. Allocated memory does
    not depend on how the allocator laid it out; reserved memory does, and is shown beside it.
    """
    from oomctl import api

    chosen = chosen_format(fmt, json)
    files = chosen_files(html, output)
    chosen_redaction(redact)
    for path, _ in files:
        check_target(path, [before, after])
    most = chosen_size(max_size)
    with watched() as progress:
        progress("reading", 0.0)
        first = api.load(before, max_bytes=most)
        progress("reading", 0.4)
        second = api.load(after, max_bytes=most)
        progress("comparing", 0.8)
        found = api.diff(
            first,
            second,
            at=at,
            by=by,
            device=device,
            fail_if_grown=fail_if_grown,
            user_roots=tuple(user_root or ()),
            sources=(source_before, source_after),
        )
    write_stdout(_rendered(found, chosen, verbose, redact))
    for path, form in files:
        size = write_file(path, _rendered(found, "text" if form == "terminal" else form, verbose, redact))
        write_stderr(one_line(f"wrote {path} ({format_size(size)})"))
    if found.guard is not None and found.guard.failed:
        write_stderr(one_line(f"gate failed: {found.guard.reason}"))
        return exits.FINDING
    return exits.OK


def _rendered(found: Diff, fmt: str, verbose: bool, redact: str | None) -> str:
    from oomctl import api

    able = abilities() if fmt == "terminal" else {"width": FILE_WIDTH}
    able.pop("whole_verdict", None)
    return api.render_diff(found, fmt, verbose=verbose, redact=redact, **able)
