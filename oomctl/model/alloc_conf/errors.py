"""The one signal inside the grammar: torch would raise here."""

from __future__ import annotations


class ConfError(Exception):
    """Torch would raise on this string.

    Args:
        key: Option it is about, "" for the whole.
        message: One sentence without a full stop.
    """

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key
        self.message = message
