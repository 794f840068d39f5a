"""What the terminal can show: width, colour, characters."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any, TextIO

NARROWEST, WIDEST = 40, 120
"""Columns between which a report adapts itself."""


def abilities(stream: TextIO | None = None) -> dict[str, Any]:
    """Options of the terminal renderer for a stream.

    Args:
        stream: Where the report goes; stdout by default.
    """
    target = sys.stdout if stream is None else stream
    watched = target.isatty()
    return {
        "width": min(max(shutil.get_terminal_size((80, 24)).columns, NARROWEST), WIDEST),
        "color": _color(watched),
        "unicode": _unicode(target),
        # COLUMNS, which shells keep to themselves, is set by somebody who wants lines of that width.
        "whole_verdict": not watched and not _asked_width(),
    }


def _asked_width() -> bool:
    return os.environ.get("COLUMNS", "").isdecimal() and int(os.environ["COLUMNS"]) > 0


def _color(watched: bool) -> bool:
    """https://no-color.org and FORCE_COLOR; otherwise colour is for people who watch."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return watched and os.environ.get("TERM") != "dumb"


def _unicode(stream: TextIO) -> bool:
    try:
        "█▏│─…→".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
