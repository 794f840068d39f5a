"""Lines to the person at the terminal; they never fail and never touch what the program prints."""

from __future__ import annotations

import contextlib
import sys

from oomctl.recorder.rank import rank_of


def say(text: str) -> None:
    """One line on stderr that begins with "oomctl:", with the rank where there are several.

    Args:
        text: A plain sentence, numbers first where there are any.
    """
    rank = rank_of()
    who = f"oomctl[rank {rank.rank}]" if rank.rank is not None and (rank.world or 1) > 1 else "oomctl"
    with contextlib.suppress(Exception):
        stream = sys.stderr
        stream.write(f"{who}: {''.join(c if c.isprintable() else ' ' for c in text)}\n")
        stream.flush()


_said: set[str] = set()


def say_once(text: str) -> None:
    """The same, but a line that this process has said already is not said again."""
    if text not in _said:
        _said.add(text)
        say(text)


def reason(error: BaseException) -> str:
    """Why something failed, in a few words."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[0].lower() + error.strerror[1:]
    return f"{type(error).__name__}: {str(error)[:200]}"
