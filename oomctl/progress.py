"""Progress as a plain callback, so that no room below the command line knows about terminals."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, float], None]
"""Called with what is being done and the share done, 0 to 1."""


def silent(what: str, share: float) -> None:
    """Ignores progress; the default everywhere."""
