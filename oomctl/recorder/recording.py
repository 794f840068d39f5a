"""A recording of this process: starts torch's history, writes bundles, watches the steps."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from types import ModuleType, TracebackType
from typing import Any, Final

from oomctl.recorder import bundle, triggers
from oomctl.recorder.backend import Backend
from oomctl.recorder.errors_seen import memory_error, text_of
from oomctl.recorder.facts import Facts
from oomctl.recorder.imports import when_imported
from oomctl.recorder.rank import rank_of
from oomctl.recorder.say import reason, say, say_once
from oomctl.recorder.settings import Settings, watermark_bytes
from oomctl.recorder.watch import Watch

ALLOWANCE: Final = 2.0
ALLOWED_SHARE: Final = 0.05
"""Writing out failures beyond the first few may take these seconds and this share of the time so far: a program may
catch hundreds, and the latest is the one that may end it."""

LOOK_EVERY: Final = 0.02
LIMIT_EVERY: Final = 5.0
"""Seconds between two looks at the counters, and at what the driver says is free, however short the steps are."""


class Recording(contextlib.ContextDecorator):
    """Records the allocations of a block or function and writes a bundle at each failure in it.

    Within another recording of the same process it is part of that one. Whatever goes wrong in here is said on stderr
    and swallowed; the program goes on.

    Args:
        settings: What to record and when to write it out.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.out = os.path.abspath(settings.out)
        self.pid = os.getpid()
        self.active = False
        self.outer: Recording | None = None
        self.backends: list[Backend] = []
        self.bundles: list[str] = []
        self.failures = 0
        self.number = 0
        self.number_from: str | None = None
        self._torch: ModuleType | None = None
        self._watch = Watch(settings.lines_every, settings.alarm)
        self._lock = threading.RLock()
        self._writer = 0
        self._started_us: int | None = None
        self._theirs = False
        self._unexplained: str | None = None
        self._began = time.monotonic()
        self._spent = 0.0
        self._full = False
        self._next_look = 0.0
        self._next_limit = 0.0
        self._limit: int | None = None
        self._marked = False
        self._scope: Any = None
        self._undo: list[Any] = []

    # Beginning and end

    def start(self) -> Recording:
        """Begins as soon as the program uses a device; until then it only waits."""
        if self.active or self.outer is not None:
            return self
        if _current and _current[-1].here:  # torch has one history a process
            self.outer = _current[-1]
            return self
        self.active, self.pid = True, os.getpid()
        _current[:] = [self]
        self._undo.append(triggers.on_signal(self.settings.signal, lambda: self._safely("signal")))
        self._undo.append(triggers.on_exceptions(self.failed))
        self._undo.append(when_imported("torch", self._torch_is_there))
        return self

    def stop(self) -> None:
        """Ends it; the ring is given back."""
        if self.outer is not None:
            self.outer = None
            return
        if not self.active:
            return
        here = self.here
        if here and self.settings.at_exit:
            self._safely("exit")
        self.active = False
        if self in _current:
            _current.remove(self)
        for undo in reversed(self._undo):
            with contextlib.suppress(Exception):
                undo()
        self._undo.clear()
        if here:
            self._mark(None)
            for backend in self.backends:
                if not self._theirs:
                    with contextlib.suppress(Exception):
                        backend.stop()

    def __enter__(self) -> Recording:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self.failed(error)
        self.stop()

    def _recreate_cm(self) -> Recording:
        """A fresh one for each call of a decorated function, which may call itself."""
        return Recording(self.settings)

    @property
    def here(self) -> bool:
        """Whether this is the process that began it, and no fork of it."""
        return self.active and os.getpid() == self.pid

    # torch

    def _torch_is_there(self, torch: ModuleType) -> None:
        try:
            self._torch = torch
            found = Backend.built(torch)
            if not found:
                say_once(
                    f"this torch ({getattr(torch, '__version__', '?')}) records no device memory: it was built without "
                    "CUDA, HIP or XPU; the program runs on unrecorded"
                )
                return
            for backend in found:
                backend.when_initialised(lambda backend=backend: self._device_is_there(backend))  # type: ignore[misc]
            self._undo.append(triggers.on_optimizer_step(torch, self._optimizer_stepped))
        except Exception as error:
            say(f"cannot record with this torch: {reason(error)}; the program runs on unrecorded")

    def _device_is_there(self, backend: Backend) -> None:
        if not self.here:
            return
        self.backends.append(backend)
        try:
            self._theirs = bool(backend.is_recording())
            if not self._theirs:
                backend.start(self.settings)
            self._started_us = time.time_ns() // 1000
        except Exception as error:  # for example under cudaMallocAsync, which keeps no history
            say(f"no history of {backend.name} memory: {reason(error)}; failures are written out without it")
        try:
            if not triggers.observe(backend, _dispatch):
                say("this torch has no observer of failures: bundles are written after the exception, not at it")
            self._undo.append(triggers.every(self.settings, self._tick))
        except Exception as error:
            say(f"cannot watch {backend.name} memory: {reason(error)}; bundles are written after the exception")

    # Failures

    def _out_of_memory(self, backend: Backend, device: int, size: int, allowed: int, free: int) -> None:
        """Called by torch with the failure still standing; every state is as the message will tell it."""
        self.failures += 1
        now = time.monotonic()
        few = len(self.bundles) < self.settings.max_dumps
        affordable = self._spent <= ALLOWANCE + ALLOWED_SHARE * (now - self._began)
        self._unexplained = None
        if self.settings.max_dumps == 0 or not (few or affordable):
            return
        request = {"segment_size": size, "allowed_or_total": allowed, "device_free": free}
        self._unexplained = self._write("oom", "at", backend, device, request)
        self._spent += time.monotonic() - now

    def failed(self, error: BaseException) -> None:
        """Takes note of an exception: adds it to the bundle of its failure, or writes one where there is none yet."""
        if self.outer is not None:
            return self.outer.failed(error)
        if not self.here:
            return None
        try:
            found = memory_error(error)
            if found is None or getattr(found, "_oomctl_seen", False):
                return None
            with contextlib.suppress(Exception):
                found._oomctl_seen = True  # type: ignore[attr-defined]
            path = self._unexplained
            self._unexplained = None
            if path is None and self.backends:
                backend = self.backends[0]
                path = self._write("exception", "after", backend, backend.current_device(), None)
            if path is not None:
                bundle.add_message(path, text_of(error))
        except Exception as trouble:
            say(f"cannot add the exception to its bundle: {reason(trouble)}")
        return None

    # Dumps

    def dump(self, cause: str = "call") -> str | None:
        """Writes the state out now.

        Args:
            cause: call, signal, interval, watermark or exit; for incident.json and the name.

        Returns:
            Where the bundle is; None where there is nothing to write or nowhere to write it.
        """
        if self.outer is not None:
            return self.outer.dump(cause)
        if not self.backends:
            say("nothing to write out: no device has been used yet")
            return None
        backend = self.backends[0]
        return self._write(cause, "at", backend, backend.current_device(), None)

    def _safely(self, cause: str) -> None:
        try:
            if self.here:
                self.dump(cause)
        except Exception as error:
            say(f"cannot write the state out: {reason(error)}")

    def _write(
        self, cause: str, moment: str, backend: Backend, device: int, request: dict[str, int] | None
    ) -> str | None:
        if self._writer == threading.get_ident():  # a signal that arrives meanwhile
            return None
        with self._lock:
            self._writer = threading.get_ident()
            began = time.monotonic()
            try:
                rank = rank_of()
                facts = Facts(backend, device)
                incident = facts.collect(
                    cause=cause, moment=moment, rank=rank, request=request, counters=self._counters()
                )
                path, troubles = bundle.write_bundle(
                    self.out,
                    bundle.name_of(cause, rank.rank),
                    incident,
                    facts.files(),
                    as_zip=self.settings.as_zip,
                )
            except Exception as error:
                say(f"{_called(cause)}, but it could not be written out: {reason(error)}; the program goes on")
                return None
            finally:
                self._writer = 0
        self._keep(cause, path)
        for trouble in troubles:
            say(trouble)
        if cause == "oom" and len(self.bundles) == self.settings.max_dumps and self._full:
            return path  # one of many: said once, and again at the end
        self._full = len(self.bundles) == self.settings.max_dumps
        where = f" at step {self.number}" if self.number_from else ""
        say(
            f"{_called(cause)}, {backend.name} device {device}{where}: wrote {path} in "
            f"{time.monotonic() - began:.1f} s; read it with: oomctl diagnose {path}"
        )
        return path

    def _counters(self) -> dict[str, Any]:
        return {
            "oom_count": self.failures,
            "step": {"number": self.number, "source": self.number_from} if self.number_from else None,
            "recording": {
                "max_entries": None if self._theirs else self.settings.max_entries,
                "stacks": None if self._theirs else self.settings.stacks,
                "context": None if self._theirs else self.settings.context,
                "started_us": self._started_us,
            },
        }

    def _keep(self, cause: str, path: str) -> None:
        """The first failures stay, the latest takes the last place."""
        if cause not in ("oom", "exception"):
            return
        self.bundles.append(path)
        if len(self.bundles) > max(1, self.settings.max_dumps):
            triggers.remove(self.bundles.pop(-2))

    # Steps

    def step(self, number: int | None = None) -> None:
        """Marks the end of a step in the trace and looks at memory.

        Args:
            number: Of the step; by default one more than the last.
        """
        if self.outer is not None:
            self.outer.step(number)
        elif self.here:
            self.number = self.number + 1 if number is None else int(number)
            self.number_from = "oomctl.step"
            with contextlib.suppress(Exception):
                self._mark(f"oomctl.step#{self.number}")
            self._look()

    def _optimizer_stepped(self) -> None:
        if self.here and self.number_from != "oomctl.step":
            self.number += 1
            self.number_from = "optimizer"
            self._look()

    def _mark(self, name: str | None) -> None:
        """Ends the scope of the last step and opens the next; torch keeps scopes beside the history."""
        if self._scope is not None:
            scope, self._scope = self._scope, None
            scope.__exit__(None, None, None)
        if name is not None and self._torch is not None and self.backends:
            self._scope = self._torch.profiler.record_function(name)
            self._scope.__enter__()

    def _look(self) -> None:
        now = time.monotonic()
        if not self.backends or (now < self._next_look and not self._watch.due(self.number)):
            return
        self._next_look = now + LOOK_EVERY
        try:
            backend = self.backends[0]
            device = backend.current_device()
            sample = backend.sample(device)
            if now >= self._next_limit and (self.settings.alarm or self.settings.watermark):
                self._limit = backend.limit(device)
                self._next_limit = now + LIMIT_EVERY
            for text in self._watch.see(self.number, sample, self._limit):
                say(text)
            self._check_mark(sample.reserved, self._limit)
        except Exception as error:
            self._next_look = float("inf")
            say(f"cannot watch memory any more: {reason(error)}")

    def _tick(self, cause: str) -> None:
        """Called by the timer."""
        if not self.here or not self.backends:
            return
        if cause == "interval":
            self._safely("interval")
            return
        with contextlib.suppress(Exception):
            backend = self.backends[0]
            device = backend.current_device()
            self._check_mark(backend.sample(device).reserved, backend.limit(device))

    def _check_mark(self, reserved: int, limit: int | None) -> None:
        mark = watermark_bytes(self.settings.watermark, limit)
        if mark is not None and reserved >= mark and not self._marked:
            self._marked = True
            self._safely("watermark")

    def closing_words(self) -> Mapping[str, bool]:
        """What the wrapper may want to say at the end."""
        return {
            "torch": self._torch is not None,
            "device": bool(self.backends),
            "built": self._torch is not None and bool(Backend.built(self._torch)),
        }


_current: list[Recording] = []
"""The recording under way, if there is one."""


def _dispatch(backend: Backend, device: int, size: int, allowed: int, free: int) -> None:
    """torch's observers cannot be taken back: they come here, and here is nothing to do between recordings."""
    recording = _current[-1] if _current else None
    if recording is not None and recording.here:
        try:
            recording._out_of_memory(backend, device, size, allowed, free)
        except Exception as error:
            say(f"the failure could not be written out: {reason(error)}; the program goes on")


def record(out: str = ".", **options: Any) -> Recording:
    """Records allocations in a ``with`` block or a decorated function; writes a bundle into `out` at each failure.

    Args:
        out: Folder for the bundles.
        options: Other fields of `oomctl.recorder.settings.Settings`.

    Returns:
        A context manager, decorator, and object with `step`, `dump`, `start` and `stop`.

    Raises:
        OomctlError: An option has no such value; or, with ``require_device``, there is nothing to record.
    """
    settings = Settings(out=out, **options)
    if settings.require_device:
        triggers.require_device()
    return Recording(settings)


def step(number: int | None = None) -> None:
    """Marks the end of a step of the recording under way, if there is one.

    Args:
        number: Of the step; by default one more than the last.
    """
    if _current:
        _current[-1].step(number)


def _called(cause: str) -> str:
    return "out of memory" if cause in ("oom", "exception") else f"state on {cause}"
