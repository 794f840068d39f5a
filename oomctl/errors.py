"""The one error that a user causes, as against a bug; and remarks that stop nothing."""

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


class OomctlWarning(UserWarning):
    """Something that the user should know while waiting; the command line shows it as a line on stderr."""
