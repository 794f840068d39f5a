"""The renderers, and the one way to call them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from oomctl.errors import OomctlError
from oomctl.model.report import Report
from oomctl.report.base import Options, Renderer
from oomctl.report.html import HtmlRenderer
from oomctl.report.json import JsonRenderer
from oomctl.report.markdown import MarkdownRenderer
from oomctl.report.redact import MODES
from oomctl.report.terminal import TerminalRenderer
from oomctl.report.text import TextRenderer

RENDERERS: tuple[Renderer, ...] = (
    TerminalRenderer(),
    TextRenderer(),
    JsonRenderer(),
    HtmlRenderer(),
    MarkdownRenderer(),
)
"""A format is one file and one entry here."""


def render(report: Report, fmt: str = "terminal", **options: Any) -> str:
    """A report in one of the formats.

    Args:
        report: What was concluded.
        fmt: Name of a renderer.
        options: Fields of `Options`; None keeps the default.

    Returns:
        Text that ends in a newline.

    Raises:
        OomctlError: There is no such format.
    """
    found = next((one for one in RENDERERS if one.name == fmt), None)
    if found is None:
        raise OomctlError(f"no format {fmt!r}", "one of " + ", ".join(one.name for one in RENDERERS))
    chosen = replace(Options(), **{name: value for name, value in options.items() if value is not None})
    mode = chosen.redact or found.redacts
    if mode not in MODES:
        raise OomctlError(f"no redaction {mode!r}", "one of " + ", ".join(MODES))
    return found.render(report, replace(chosen, redact=mode))
