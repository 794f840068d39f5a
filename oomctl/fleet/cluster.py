"""A Dask cluster: one that runs already, or one of this machine's processes. Inputs are read where the workers are."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from oomctl.errors import OomctlError
from oomctl.fleet.base import Done, Work

_IN_FLIGHT: Final = 4
"""Tasks a thread of the cluster that are handed out ahead of their results."""
_RETRIES: Final = 2
"""Times that a task is handed to another worker after its worker has died."""
_PATIENCE: Final = 60.0
"""Seconds without any worker, or without any result where tasks have no limit of their own, before it is given up."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A Dask cluster.

    Attributes:
        address: Of its scheduler, for example "tcp://10.0.0.1:8786"; "local" starts one on this machine.
        workers: Processes of a local one.
        seconds: Longest time without any result, or None.
    """

    address: str
    workers: int = 2
    seconds: float | None = None

    def run(self, work: Work, tasks: Sequence[Any]) -> Iterator[Done]:
        """Every task once, as it ends.

        Raises:
            OomctlError: There is no such cluster, or Dask is not installed.
        """
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            raise OomctlError("a cluster needs Dask", "pip install 'oomctl[cluster]'") from None
        unreachable: tuple[type[Exception], ...] = (OSError, ValueError, *_timeouts())
        with contextlib.ExitStack() as stack:
            try:
                target: Any = self.address
                if self.address == "local":
                    target = stack.enter_context(
                        LocalCluster(
                            n_workers=self.workers, threads_per_worker=1, dashboard_address=None, silence_logs=50
                        )
                    )
                client = stack.enter_context(Client(target, timeout="15s", set_as_default=False))
            except unreachable as error:
                raise OomctlError(
                    f"no Dask scheduler at {self.address}: {(str(error) or 'no answer').splitlines()[0][:150]}",
                    "start one with `dask scheduler`, and workers with `dask worker ADDRESS`",
                ) from error
            stack.enter_context(client.as_current())
            yield from self._drive(client, work, tasks)

    def _drive(self, client: Any, work: Work, tasks: Sequence[Any]) -> Iterator[Done]:
        from distributed import wait

        waiting = iter(enumerate(tasks))
        flying: dict[Any, int] = {}
        last = time.monotonic()
        limit = max(self.seconds or 0.0, _PATIENCE)
        while True:
            room = _IN_FLIGHT * max(_threads(client), 1)
            while len(flying) < room:
                index, task = next(waiting, (-1, None))
                if index < 0:
                    break
                future = client.submit(work, task, pure=False, retries=_RETRIES, key=f"oomctl-{id(self)}-{index}")
                flying[future] = index
            if not flying:
                return
            with contextlib.suppress(*_timeouts()):
                wait(list(flying), timeout=1.0, return_when="FIRST_COMPLETED")
            ended = [future for future in flying if future.status in ("finished", "error", "cancelled", "lost")]
            for future in sorted(ended, key=flying.__getitem__):
                last = time.monotonic()
                yield _result(future, flying.pop(future))
            if time.monotonic() - last > limit:
                why = "no worker is left in the cluster" if not _threads(client) else f"no result for {limit:g} s"
                for future, index in sorted(flying.items(), key=lambda item: item[1]):
                    future.cancel()
                    yield Done(index, trouble=why)
                for index, _ in waiting:
                    yield Done(index, trouble=why)
                return


def _timeouts() -> tuple[type[Exception], ...]:
    """What Dask raises when it has waited long enough: two types before Python 3.11."""
    import asyncio

    return (TimeoutError, asyncio.TimeoutError)


def _threads(client: Any) -> int:
    with contextlib.suppress(OSError, *_timeouts()):
        return sum(client.nthreads().values())
    return 0


def _result(future: Any, index: int) -> Done:
    if future.status == "finished":
        with contextlib.suppress(Exception):  # its worker died after it was done and before it was fetched
            return Done(index, future.result(timeout=30))
        return Done(index, trouble="its result was lost with the worker that had it")
    error = future.exception(timeout=5) if future.status == "error" else None
    name = type(error).__name__ if error is not None else future.status
    if name == "KilledWorker":
        return Done(index, trouble="every worker that read it died, as when memory runs out")
    return Done(index, trouble=f"the cluster gave it up: {name}: {str(error)[:150]}")
