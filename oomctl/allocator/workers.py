"""Independent replays at the same time; where that cannot be, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from oomctl import _native
from oomctl.progress import Progress

MANY_EVENTS: Final = 100_000
"""Events from which on replaying settings side by side pays."""

_Case = TypeVar("_Case")
_Result = TypeVar("_Result")
_job: Callable[[Any], Any] | None = None


def workers_for(events: int, cores: int | None) -> int:
    """Processes that pay: one a core where there is much to replay."""
    return (cores or 1) if events >= MANY_EVENTS else 1


def beside(call: Callable[[], _Result]) -> Callable[[], _Result]:
    """Starts a call in a thread of its own.

    Args:
        call: Spends its time in code that leaves the interpreter to others.

    Returns:
        A function that waits for the result, or raises what the call raised.
    """
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return future.result


def in_parallel(
    job: Callable[[_Case], _Result], cases: Sequence[_Case], processes: int, progress: Progress
) -> list[_Result]:
    """The job's result for every case, in order.

    Args:
        job: A pure, picklable callable; it is sent to each process once.
        cases: Picklable values.
        processes: How many to use at most, or how many threads; 1 does one after the other.
        progress: Told the share done.
    """
    results: list[_Result] = []
    if processes > 1 and len(cases) > 1 and _native.kernel("heap") is not None:
        # The compiled heap leaves the interpreter to others while it works, so threads do, and nothing is copied.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(processes, len(cases))) as pool:
            for result in pool.map(job, cases):
                results.append(result)
                progress("replaying settings", len(results) / len(cases))
        return results
    if processes > 1 and len(cases) > 1 and not _is_worker():
        from concurrent.futures import ProcessPoolExecutor
        from concurrent.futures.process import BrokenProcessPool

        try:
            with ProcessPoolExecutor(min(processes, len(cases)), initializer=_adopt, initargs=(job,)) as workers:
                for result in workers.map(_work, cases):
                    results.append(result)
                    progress("replaying settings", len(results) / len(cases))
            return results
        except (OSError, BrokenProcessPool):
            results.clear()  # no processes to be had here; the work itself needs none
    for case in cases:
        progress("replaying settings", len(results) / len(cases))
        results.append(job(case))
    return results


def _is_worker() -> bool:
    """Whether this process is one of several already, which may have none of its own."""
    from multiprocessing import current_process

    return current_process().daemon


def _adopt(job: Callable[[Any], Any]) -> None:
    """Keeps the job that this process works on."""
    global _job  # noqa: PLW0603 - one job a process, set once before any work
    _job = job


def _work(case: Any) -> Any:
    assert _job is not None
    return _job(case)
