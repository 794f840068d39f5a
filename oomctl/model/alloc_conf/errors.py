"""The one signal inside the grammar: torch would raise here."""

from __future__ import annotations


class ConfError(Exception):
    """Torch would raise on this string.

    Args:
        key: Option it is about, "" for the whole.
        message: What is wrong, one sentence without a full stop.
        says: Part of torch's own message, so that a user can match the two; "" where torch has none.
    """

    def __init__(self, key: str, message: str, says: str = "") -> None:
        super().__init__(message)
        self.key = key
        self.message = message
        self.says = says
