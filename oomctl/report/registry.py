"""The renderers, and the one way to call them."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any, NamedTuple

from oomctl.errors import OomctlError
from oomctl.model.report import Report
from oomctl.report.base import MODES, Options, Renderer


class Format(NamedTuple):
    """A renderer that is imported only when it is used: all of them together take longer to load than a log to read.

    Attributes:
        name: The renderer's.
        suffixes: The renderer's.
        module: Where it is.
        renderer: Its class.
    """

    name: str
    suffixes: tuple[str, ...]
    module: str
    renderer: str

    def load(self) -> Renderer:
        """The renderer."""
        found: Renderer = getattr(import_module(self.module), self.renderer)()
        return found


RENDERERS: tuple[Format, ...] = (
    Format("terminal", (), "oomctl.report.terminal", "TerminalRenderer"),
    Format("text", (".txt",), "oomctl.report.text", "TextRenderer"),
    Format("json", (".json",), "oomctl.report.json", "JsonRenderer"),
    Format("html", (".html", ".htm"), "oomctl.report.html", "HtmlRenderer"),
    Format("markdown", (".md", ".markdown"), "oomctl.report.markdown", "MarkdownRenderer"),
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
    known = next((one for one in RENDERERS if one.name == fmt), None)
    if known is None:
        raise OomctlError(f"no format {fmt!r}", "one of " + ", ".join(one.name for one in RENDERERS))
    found = known.load()
    chosen = replace(Options(), **{name: value for name, value in options.items() if value is not None})
    mode = chosen.redact or found.redacts
    if mode not in MODES:
        raise OomctlError(f"no redaction {mode!r}", "one of " + ", ".join(MODES))
    return found.render(report, replace(chosen, redact=mode))
