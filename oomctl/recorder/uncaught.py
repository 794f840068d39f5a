"""What Python does with an exception that nobody caught: the program's hook, and what is printed when that fails."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from oomctl.recorder.errors_seen import trimmed

INTERRUPTED = 130
"""Exit code of a program that Ctrl-C ended."""


def uncaught(error: BaseException, failed: Callable[[BaseException], None]) -> tuple[int, bool]:
    """Hands an exception to ``sys.excepthook`` as Python does at the end of a program.

    Called outside of any handler, so that an exception in the hook has no context that it would not have without us.

    Args:
        error: What the program raised; never a SystemExit.
        failed: Told of the error where the hook, which else tells the recording, is not to be called.

    Returns:
        (exit code, whether the program is to end by SIGINT).
    """
    kind, trace = type(error), trimmed(error.__traceback__)
    error = error.with_traceback(trace)
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    interrupted = isinstance(error, KeyboardInterrupt)
    usual = (INTERRUPTED, True) if interrupted else (1, False)
    hook: Any = getattr(sys, "excepthook", None)
    if not callable(hook):
        failed(error)
    if not hasattr(sys, "excepthook"):
        _print("sys.excepthook is missing\n")
        _display(error)
        return usual
    raised = _raised_by(hook, kind, error, trace)
    if raised is None:
        return usual
    if isinstance(raised, SystemExit):
        return exit_code(raised), False
    _print("Error in sys.excepthook:\n")
    _display(raised.with_traceback(trimmed(raised.__traceback__)))
    _print("\nOriginal exception was:\n")
    _display(error)
    return usual


def exit_code(error: SystemExit) -> int:
    """As Python's own: None is 0, a number is itself, anything else is printed and is 1."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code
    with contextlib.suppress(Exception):
        print(error.code, file=sys.stderr, flush=True)
    return 1


def _raised_by(hook: Callable[..., object], *told: object) -> BaseException | None:
    try:
        hook(*told)
    except BaseException as error:
        return error
    return None


def _display(error: BaseException) -> None:
    """An exception with its causes, as the interpreter prints it."""
    if getattr(sys, "stderr", None) is not None:
        _print("".join(traceback.format_exception(type(error), error, error.__traceback__)))


def _print(text: str) -> None:
    """To the program's own stderr or, where that fails, to the process's."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except Exception:
        with contextlib.suppress(OSError):
            os.write(2, text.encode("utf-8", "backslashreplace"))
