"""Runs a program as ``python program.py ARGS`` or ``python -m module ARGS`` would, with a recording around it."""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import sys
from collections.abc import Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from types import CodeType
from typing import Final

from oomctl.errors import OomctlError
from oomctl.recorder.errors_seen import memory_error
from oomctl.recorder.recording import Recording
from oomctl.recorder.say import say
from oomctl.recorder.settings import Settings
from oomctl.recorder.triggers import require_device
from oomctl.recorder.uncaught import exit_code, uncaught

LAUNCHERS: Final = (
    "torchrun",
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate",
    "accelerate.commands.launch",
    "accelerate.commands.accelerate_cli",
    "deepspeed",
    "deepspeed.launcher.runner",
    "horovodrun",
    "mpirun",
    "srun",
)
"""Programs that start the program to be recorded in processes of their own."""


def execute(target: str, args: Sequence[str], *, module: bool, settings: Settings) -> int:
    """Runs it.

    The exception and the exit code are the program's own: a traceback is printed as Python would, without our frames;
    a program that Ctrl-C ended ends by that signal.

    Args:
        target: Path of a script, folder or zip; or the name of a module.
        args: The program's own arguments.
        module: Whether `target` is a module.
        settings: Of the recording.

    Returns:
        The program's exit code.

    Raises:
        OomctlError: There is no such program; or, if a device is required, none to record.
    """
    process = os.getpid()
    _take_place(target, args, module)
    _check(target, module)
    if settings.require_device:
        require_device()
    recording = Recording(settings).start()
    code, error = _run(target, module, recording)
    interrupted = False
    if error is not None:  # outside of any handler, as the hook of a program without us runs
        code, interrupted = uncaught(error, recording.failed)
    if os.getpid() == process:  # a fork that the program left behind says nothing
        recording.stop()
        _close(recording)
    if interrupted:
        _die_by(signal.SIGINT)
    return code


def _run(target: str, module: bool, recording: Recording) -> tuple[int, BaseException | None]:
    """(exit code, the exception that nobody caught)."""
    try:
        if module:
            runpy.run_module(target, run_name="__main__", alter_sys=True)
        elif os.path.isfile(target) and not target.endswith((".pyc", ".pyz", ".zip")):
            _run_script(target)
        else:
            runpy.run_path(target, run_name="__main__")
    except SystemExit as error:
        if memory_error(error.__context__) is not None:  # a program that says sys.exit(1) in its handler
            recording.failed(error)
        return exit_code(error), None
    except BaseException as error:
        return 1, error
    return 0, None


class _Script(SourceFileLoader):
    """Compiles a script as Python does the one on its command line: without a cached file beside it."""

    def get_code(self, fullname: str) -> CodeType:
        """Its code."""
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


def _run_script(target: str) -> None:
    """Runs a script as ``__main__``, which it stays to the end of the process: for its threads, forks and pickles."""
    loader = _Script("__main__", os.path.abspath(target))
    spec = spec_from_file_location("__main__", loader.path, loader=loader)
    assert spec is not None
    main = module_from_spec(spec)
    main.__spec__ = None
    main.__package__ = None
    main.__cached__ = None  # type: ignore[attr-defined]
    sys.modules["__main__"] = main
    loader.exec_module(main)


def _check(target: str, module: bool) -> None:
    if module:
        if not target.strip(".") or find_spec(target.partition(".")[0]) is None:
            raise OomctlError(f"no module named {target}", "oomctl run -m MODULE ARGS, as with python -m")
    elif not os.path.exists(target):
        raise OomctlError(f"no such file: {target}", "oomctl run SCRIPT ARGS, or oomctl run -m MODULE ARGS")
    if os.path.basename(target) in LAUNCHERS:
        say(
            f"{target} starts the program in other processes, and those are not recorded; put oomctl inside: "
            f"{os.path.basename(target)} ... -m oomctl run train.py"
        )


def _take_place(target: str, args: Sequence[str], module: bool) -> None:
    """argv and the first place on the search path become the program's."""
    sys.argv[:] = [target, *args]
    if not getattr(sys.flags, "safe_path", False) and sys.path:
        sys.path[0] = os.getcwd() if module else os.path.dirname(os.path.realpath(target))


def _close(recording: Recording) -> None:
    words = recording.closing_words()
    if words["built"] and not words["device"]:
        say("the program never used a CUDA, HIP or XPU device: nothing was recorded")
    elif not words["torch"]:
        say("the program never imported torch: nothing was recorded")
    kept = len(recording.bundles)
    if recording.failures > kept:
        names = ", ".join(recording.bundles) or "none"
        say(f"{recording.failures} requests failed for want of memory; kept as bundles: {names}")


def _die_by(number: int) -> None:
    """Ends by a signal, as Python does after Ctrl-C, so that the shell knows."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
