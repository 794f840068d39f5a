"""Cases in child processes, so that one that dies or hangs costs itself only."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import select
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.fuzz.case import PATIENCE, Outcome, run

BATCH: Final = 150
"""Cases of one child: what one leaves in memory does not add up."""
_ADDRESS_SPACE: Final = 6 << 30
"""Bytes that a child may map, so that a bomb ends the child and not the machine."""


def cases(kind: str, seed: int, first: int, count: int) -> Iterator[Outcome]:
    """Runs cases one after the other.

    Args:
        kind: snapshots, logs or reports.
        seed: Chooses the series.
        first: Number of the first case.
        count: How many.

    Yields:
        The outcome of each.
    """
    number = first
    while number < first + count:
        last = min(number + BATCH, first + count)
        for outcome in _child(kind, seed, number, last):
            yield outcome
            number = outcome.number + 1


def _child(kind: str, seed: int, first: int, last: int) -> Iterator[Outcome]:
    """Outcomes of one child, with one of its death where it dies."""
    folder = tempfile.mkdtemp(prefix="fuzz-")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        code = 1
        with contextlib.suppress(BaseException):
            resource.setrlimit(resource.RLIMIT_AS, (_ADDRESS_SPACE, _ADDRESS_SPACE))
            with os.fdopen(write, "w") as out:
                for number in range(first, last):
                    out.write(json.dumps(dataclasses.asdict(run(kind, seed, number, Path(folder)))) + "\n")
                    out.flush()
            code = 0
        os._exit(code)
    os.close(write)
    expected = first
    try:
        with os.fdopen(read, "rb", buffering=0) as pipe:
            for line in _lines(pipe.fileno(), child):
                outcome = Outcome(**json.loads(line))
                expected = outcome.number + 1
                yield outcome
        _, status = os.waitpid(child, 0)
        child = 0
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
        shutil.rmtree(folder, ignore_errors=True)
    if expected < last:
        yield Outcome(kind, expected, "", -1, 0.0, 0, 0, f"the process died, wait status {status}")


def _lines(pipe: int, child: int) -> Iterator[bytes]:
    buffer = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], 3 * PATIENCE)
        if not ready:  # in compiled code, where the alarm does not come through
            os.kill(child, signal.SIGKILL)
        data = os.read(pipe, 1 << 16)
        if not data:
            return
        *lines, buffer = (buffer + data).split(b"\n")
        yield from lines
