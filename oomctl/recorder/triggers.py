"""What makes a recording write something out: signals, timers, exceptions that end the program, optimizer steps."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, ModuleType, TracebackType
from typing import Any, Final

from oomctl.errors import OomctlError
from oomctl.recorder.backend import Backend
from oomctl.recorder.say import say
from oomctl.recorder.settings import Settings, signal_number

Undo = Callable[[], None]

WATCH_SECONDS: Final = 2.0
"""Between two looks of the timer at a watermark."""

_observed: set[tuple[int, str]] = set()


def observe(backend: Backend, call: Callable[[Backend, int, int, int, int], None]) -> bool:
    """Attaches to torch's failures once a process and kind; False where this torch cannot."""
    key = (os.getpid(), backend.kind)
    if key in _observed:
        return True

    def observer(device: int, size: int, allowed: int, free: int) -> None:
        call(backend, device, size, allowed, free)

    if not backend.observe(observer):
        return False
    _observed.add(key)
    return True


def on_signal(name: str, call: Callable[[], None]) -> Undo:
    """Calls back on a signal, and whoever handled it before, too."""
    number = signal_number(name)
    if number is None:
        return _nothing
    if threading.current_thread() is not threading.main_thread():
        say(f"only the main thread can listen to {name}: started elsewhere, the recording does not")
        return _nothing
    process = os.getpid()
    before = signal.getsignal(number)

    def handle(received: int, frame: FrameType | None) -> None:
        if os.getpid() == process:
            call()
        if callable(before):
            before(received, frame)
        elif os.getpid() != process and before == signal.SIG_DFL:  # a fork dies of it, as it would without us
            signal.signal(received, signal.SIG_DFL)
            os.kill(os.getpid(), received)

    signal.signal(number, handle)

    def undo() -> None:
        if signal.getsignal(number) is handle:
            signal.signal(number, before if before is not None else signal.SIG_DFL)

    return undo


def on_exceptions(call: Callable[[BaseException], None]) -> Undo:
    """Calls back before an exception that nobody caught is printed, in any thread."""
    main, others = sys.excepthook, threading.excepthook

    def in_main(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        call(error)
        main(kind, error, trace)

    def in_thread(args: Any) -> None:
        if args.exc_value is not None:
            call(args.exc_value)
        others(args)

    sys.excepthook, threading.excepthook = in_main, in_thread

    def undo() -> None:
        if getattr(sys, "excepthook", None) is in_main:
            sys.excepthook = main
        if getattr(threading, "excepthook", None) is in_thread:
            threading.excepthook = others

    return undo


def on_optimizer_step(torch: ModuleType, call: Callable[[], None]) -> Undo:
    """Calls back after each step of any optimizer, except inside of what is being compiled."""
    optimizers = sys.modules.get(f"{torch.__name__}.optim.optimizer")  # no attribute of torch.optim
    register = getattr(optimizers, "register_optimizer_step_post_hook", None)
    if register is None:
        return _nothing
    compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None) or (lambda: False)

    def hook(*_: Any) -> None:
        if not compiling():  # a constant to the compiler, so that it drops the rest and its graph stays whole
            call()

    handle = register(hook)
    undo: Undo = handle.remove
    return undo


def every(settings: Settings, call: Callable[[str], None]) -> Undo:
    """Calls back with "interval" every so many minutes, and with "look" while a watermark is waited for."""
    minutes = settings.every_minutes * 60
    if not minutes and not settings.watermark:
        return _nothing
    ended = threading.Event()

    def run() -> None:
        due = minutes or float("inf")
        waited = 0.0
        pause = min(due, WATCH_SECONDS) if settings.watermark else due
        while not ended.wait(pause):
            waited += pause
            if waited >= due:
                waited = 0.0
                call("interval")
            elif settings.watermark:
                call("look")

    threading.Thread(target=run, name="oomctl-timer", daemon=True).start()
    return ended.set


def remove(path: str) -> None:
    """Removes a bundle of our own making."""
    if path.endswith(".zip"):
        with contextlib.suppress(OSError):
            os.unlink(path)
    else:
        shutil.rmtree(path, ignore_errors=True)


def require_device() -> None:
    """Makes sure, in a process of its own, that torch has a device to record: asking in this one would touch it.

    Raises:
        OomctlError: torch is missing or has no such device.
    """
    import subprocess

    code = (
        "import torch\n"
        "x = getattr(torch, 'xpu', None)\n"
        "ok = torch.cuda.is_available() or bool(x and x.is_available())\n"
        "print(torch.__version__)\n"
        "raise SystemExit(0 if ok else 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    if done.returncode == 9:
        raise OomctlError(
            f"torch {done.stdout.strip()} finds no CUDA, HIP or XPU device here",
            "run nvidia-smi and look at CUDA_VISIBLE_DEVICES, or leave the requirement out to run unrecorded",
        )
    last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
    raise OomctlError(f"torch cannot be imported: {last}", f"this Python is {sys.executable}")


def _nothing() -> None:
    """Nothing to undo."""
