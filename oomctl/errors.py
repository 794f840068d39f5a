"""The one error that a user causes, as against a bug."""

from __future__ import annotations


class OomctlError(Exception):
    """Input or usage that oomctl cannot work with; shown as one line and a hint, exit code 2.

    Args:
        message: What is wrong, in one sentence without a trailing full stop.
        hint: What to do about it; empty when there is nothing to add.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
