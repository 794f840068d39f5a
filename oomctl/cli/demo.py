"""`oomctl demo`."""

from __future__ import annotations

import json as json_text
from importlib.resources import as_file
from typing import TYPE_CHECKING, Annotated

import typer

from oomctl import _resources
from oomctl.cli import exits, options
from oomctl.cli.chosen import chosen_files, chosen_format
from oomctl.cli.output import write_stdout
from oomctl.cli.report import Wanted, report_on
from oomctl.errors import OomctlError

if TYPE_CHECKING:
    from oomctl._resources import Traversable

INPUTS = ("snapshot.pickle.gz", "stderr.log")
"""Files of a case that make one incident; the log is missing where nothing failed."""


def demo(
    case: Annotated[str | None, typer.Argument(metavar="CASE", help="Which one; without it they are listed.")] = None,
    *,
    fmt: options.Format = None,
    json: options.Json = False,
    html: options.Html = None,
    output: options.Output = None,
    verbose: options.Verbose = False,
) -> int:
    """List the recorded failures that ship with oomctl, or diagnose one.

    All are real runs on an NVIDIA H200.
    """
    cases = _cases()
    if case is None:
        write_stdout(_list(cases))
        return exits.OK
    if case not in cases:
        raise OomctlError(f"no recorded failure {case!r}", "oomctl demo lists them: " + ", ".join(cases))
    wanted = Wanted(fmt=chosen_format(fmt, json), files=chosen_files(html, output), verbose=verbose)
    with as_file(cases[case]) as folder:
        present = [folder / name for name in INPUTS if (folder / name).is_file()]
        return report_on([str(path) for path in present], wanted)


def _cases() -> dict[str, Traversable]:
    captures = _resources.fixtures().joinpath("captures")
    if not captures.is_dir():
        raise OomctlError("this installation has no recorded failures", "install oomctl again, or use a checkout")
    return {folder.name: folder for folder in sorted(captures.iterdir(), key=lambda f: f.name) if folder.is_dir()}


def _list(cases: dict[str, Traversable]) -> str:
    import textwrap

    width = max(map(len, cases), default=0)
    rows = []
    for name, folder in cases.items():
        expected = json_text.loads(folder.joinpath("expected.json").read_text(encoding="utf-8"))
        text = f"{expected['class'].replace('_', ' ')}: {expected['why']}"
        rows.append(textwrap.fill(text, 100, initial_indent=f"{name:{width}}  ", subsequent_indent=" " * (width + 2)))
    return "\n".join([*rows, "", "oomctl demo CASE diagnoses one."])
