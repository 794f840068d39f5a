"""Exceptions that mean out of memory, and tracebacks without our own frames."""

from __future__ import annotations

import os
import re
import traceback
from types import TracebackType
from typing import Final

_HERE: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TEXT: Final = re.compile(r"out of memory|_ALLOC_FAILED|failed to allocate.*memory", re.IGNORECASE)
_STARTERS: Final = ("runpy.py", "oomctl", "oomctl.exe")
_NAMES: Final = ("OutOfMemoryError", "AcceleratorError", "RuntimeError", "DistBackendError")


def memory_error(error: BaseException | None) -> BaseException | None:
    """The failure of memory in the chain of an exception, or None.

    torch's own class is recognised by its name: the class moved between versions, and libraries raise
    ``RuntimeError: CUDA error: out of memory`` besides.
    """
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        names = {cls.__name__ for cls in type(error).__mro__}
        if "OutOfMemoryError" in names or (names & set(_NAMES) and _TEXT.search(str(error)[:4000])):
            return error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return None


def is_ours(filename: str) -> bool:
    """Whether a frame of this file stands between Python and the program."""
    return filename.startswith((_HERE, "<frozen runpy", "<frozen importlib")) or os.path.basename(filename) in _STARTERS


def trimmed(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the program's first frame on, as if it had been started without us."""
    while trace is not None:
        if not is_ours(trace.tb_frame.f_code.co_filename):
            return trace
        trace = trace.tb_next
    return None


def text_of(error: BaseException) -> str:
    """Traceback and message as Python prints them."""
    return "".join(traceback.format_exception(type(error), error, trimmed(error.__traceback__)))
