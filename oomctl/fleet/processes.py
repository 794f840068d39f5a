"""The processes of this machine. One that dies or takes too long costs the task that it had, and is replaced."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from oomctl.fleet.base import Done, Work

if TYPE_CHECKING:  # one input needs no processes, and these take a while to load
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

_PATIENCE: Final = 1.0
"""Seconds between looks at the clock."""
_TASKS_EACH: Final = 64
"""Tasks after which a process is replaced: what memory they left in pieces goes back to the system."""


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection
    index: int = -1
    started: float = 0.0
    done: int = 0


@dataclass(frozen=True, slots=True)
class Processes:
    """A pool of processes.

    Attributes:
        count: How many; one, or one task, is worked on in this process where time has no limit.
        seconds: Longest time for one task, or None.
    """

    count: int = 1
    seconds: float | None = None

    def run(self, work: Work, tasks: Sequence[Any]) -> Iterator[Done]:
        """Every task once, as it ends."""
        if self.seconds is None and (self.count <= 1 or len(tasks) <= 1):
            for index, task in enumerate(tasks):
                yield Done(index, work(task))
            return
        yield from self._pool(work, tasks)

    def _pool(self, work: Work, tasks: Sequence[Any]) -> Iterator[Done]:
        import multiprocessing
        from multiprocessing.connection import wait

        # forkserver, where there is one: a process as small as a fresh one, without a fresh one's start.
        methods = multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
        if hasattr(context, "set_forkserver_preload"):
            context.set_forkserver_preload([work.__module__])
        waiting = iter(range(len(tasks)))
        workers: list[_Worker] = []

        def start() -> _Worker:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, work), daemon=True)  # type: ignore[attr-defined]
            process.start()
            there.close()
            worker = _Worker(process, here)
            workers.append(worker)
            return worker

        def give(worker: _Worker) -> None:
            worker.index = next(waiting, -1)
            if worker.index < 0:
                _end(worker)
                workers.remove(worker)
                return
            worker.started = time.monotonic()
            with contextlib.suppress(OSError):  # it has died meanwhile: seen below
                worker.pipe.send(tasks[worker.index])

        try:
            for _ in range(max(min(self.count, len(tasks)), 1)):
                give(start())
            while workers:
                ready = wait([w.pipe for w in workers] + [w.process.sentinel for w in workers], _PATIENCE)
                for worker in list(workers):
                    done = self._look(worker, ready)
                    if done is None:
                        continue
                    worker.done += 1
                    if done.trouble or worker.done >= _TASKS_EACH:
                        _end(worker)
                        workers.remove(worker)
                        give(start())
                    else:
                        give(worker)
                    yield done
        finally:
            for worker in workers:
                _end(worker)

    def _look(self, worker: _Worker, ready: Sequence[Any]) -> Done | None:
        if worker.pipe in ready:
            try:
                return Done(worker.index, worker.pipe.recv())
            except (EOFError, OSError):
                worker.process.join(5)
                return Done(worker.index, trouble=_death(worker.process.exitcode))
        if worker.process.sentinel in ready and not worker.pipe.poll():
            return Done(worker.index, trouble=_death(worker.process.exitcode))
        if self.seconds is not None and time.monotonic() - worker.started > self.seconds:
            return Done(worker.index, trouble=f"took more than {self.seconds:g} s and was given up")
        return None


def _death(code: int | None) -> str:
    if code is not None and code < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-code).name
            why = ", as by the kernel when memory runs out" if name == "SIGKILL" else ""
            return f"the process that read it was ended by {name}{why}"
    return f"the process that read it ended with code {code}"


def _end(worker: _Worker) -> None:
    with contextlib.suppress(OSError):
        worker.pipe.close()
    worker.process.terminate()
    worker.process.join(2)
    if worker.process.is_alive():
        worker.process.kill()
        worker.process.join(2)


def _serve(pipe: Connection, work: Work) -> None:
    """What each process does: one task after the other until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(work(pipe.recv()))
