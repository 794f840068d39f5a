"""What a renderer is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from oomctl.model.report import Report

MODES: Final = ("paths", "all", "none")
"""Ways to redact."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to render.

    Attributes:
        width: Columns of a terminal; lines keep to it.
        color: ANSI colours.
        unicode: False writes ASCII only, for streams that cannot carry more.
        verbose: More rows in every table.
        whole_verdict: The verdict on one line however long, for pipes.
        redact: "paths", "all" or "none"; None takes the renderer's own default.
    """

    width: int = 80
    color: bool = False
    unicode: bool = True
    verbose: bool = False
    whole_verdict: bool = False
    redact: str | None = None


class Renderer(Protocol):
    """One format.

    Attributes:
        name: What `--format` calls it.
        suffixes: Endings of files that are written in it.
        redacts: Default redaction: formats that are passed on shorten paths.
    """

    name: str
    suffixes: tuple[str, ...]
    redacts: str

    def render(self, report: Report, options: Options) -> str:
        """The report as text, redacted as the options say."""
        ...
