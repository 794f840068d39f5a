"""A bundle: all that is known about one incident of one process, as a folder or a zip of the same files.

``oom-20260131T120000Z-rank0/`` holds a failure, ``state-...`` a dump that was asked for.

| file | what |
|---|---|
| ``incident.json`` | what a snapshot lacks (below) |
| ``snapshot.pickle`` | ``torch.cuda.memory._snapshot()``: segments, blocks and the ring of events, pickle protocol 4 |
| ``message.txt`` | traceback and message of the exception, as Python prints them; only if it was seen passing by |
| ``stack.txt`` | Python stacks of all threads at the moment, the one that asked first |
| ``memory_summary.txt`` | ``torch.cuda.memory_summary()`` |
| ``memory_stats.json`` | ``torch.cuda.memory_stats()`` |

``incident.json`` is one object of schema ``oomctl.incident/1``; sizes are bytes, unknown is null:

=====================  ================================================================================================
``cause``              oom, exception, signal, interval, watermark, exit or call
``moment``             "at": nothing has been unwound, the snapshot is the failure; "after": it has
``message``            "message.txt" once that file is there
``request``            what torch told: ``segment_size``, ``allowed_or_total``, ``device_free``; else null
``oom_count``          failures so far in this process, this one included; those that the program survived, too
``step``               ``number`` and ``source`` (oomctl.step, optimizer or null)
``device``             ``index``, ``name``, ``total``, ``capability``, ``uuid``
``mem_get_info``       ``free``, ``total``; ``card`` and ``processes`` tell of all processes
``allocated``          bytes live and ``reserved`` bytes held by torch then
``fraction``           of the device that the process may use
``environment``        variables that bear on memory, and no others
``recording``          ``max_entries``, ``stacks``, ``context``, ``started_us``
``notes``              what could not be had, and why
=====================  ================================================================================================

besides ``schema``, ``oomctl_version``, ``time_us``, ``rank``, ``local_rank``, ``world_size``, ``pid``, ``program``,
``python``, ``system``, ``backend``, ``torch``, ``cuda``, ``hip``, ``driver``.

A bundle appears whole or not at all under its name; a file that could not be written (a full disk) is left out and
noted.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Mapping
from typing import IO, Any, Final

from oomctl.recorder.say import reason

INCIDENT: Final = "incident.json"
MESSAGE: Final = "message.txt"
SNAPSHOT: Final = "snapshot.pickle"

Writer = Callable[[IO[bytes]], object]
"""Writes one file's bytes."""


def name_of(cause: str, rank: int | None, now: float | None = None) -> str:
    """Name of a bundle.

    Args:
        cause: As in incident.json.
        rank: 0 stands for a process that is no rank of anything.
        now: Seconds since the epoch; the present by default.
    """
    kind = "oom" if cause in ("oom", "exception") else "state"
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    return f"{kind}-{stamp}-rank{rank or 0}"


def write_bundle(
    out: str, name: str, facts: dict[str, Any], files: Mapping[str, Writer], *, as_zip: bool = False
) -> tuple[str, list[str]]:
    """Writes a bundle.

    Args:
        out: Folder; made if it is missing. Where it cannot be used, the system's temporary folder is.
        name: See `name_of`; a number is added where it is taken.
        facts: For incident.json.
        files: The other files in the order in which to write them, the large one last.
        as_zip: One zip instead of a folder.

    Returns:
        Where it is, and what went wrong on the way.

    Raises:
        OSError: It could be written nowhere.
    """
    troubles: list[str] = []
    try:
        return _write(out, name, facts, files, as_zip, troubles), troubles
    except OSError as error:
        troubles.append(f"cannot write to {out}: {reason(error)}")
        return _write(tempfile.gettempdir(), name, facts, files, as_zip, troubles), troubles


def _write(
    out: str, name: str, facts: dict[str, Any], files: Mapping[str, Writer], as_zip: bool, troubles: list[str]
) -> str:
    os.makedirs(out, exist_ok=True)
    folder = tempfile.mkdtemp(prefix=f".{name}-", dir=out)
    try:
        _file(folder, INCIDENT, _json(facts))  # a disk that takes not even this is of no use
        failed = []
        for file, write in files.items():
            try:
                _file(folder, file, write)
            except Exception as error:  # private API of any torch may raise anything
                failed.append(f"{file}: {reason(error)}")
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, file))
        if failed:
            facts["notes"] = [*facts.get("notes", ()), *failed]
            troubles += failed
            _file(folder, INCIDENT, _json(facts))
        os.chmod(folder, 0o777 & ~_umask())
        if as_zip:
            return _settle(_zipped(folder), out, name, ".zip")
        return _settle(folder, out, name, "")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def add_message(path: str, text: str) -> None:
    """Adds the exception to a bundle once it is known.

    Args:
        path: Of the folder or zip.
        text: Traceback and message.

    Raises:
        OSError: It cannot be written.
    """
    if path.endswith(".zip"):
        with tempfile.TemporaryDirectory(prefix=".oomctl-", dir=os.path.dirname(path)) as folder:
            with zipfile.ZipFile(path) as archive:
                archive.extractall(folder)
            _add(folder, text)
            packed = _zipped(folder)
            os.replace(packed, path)
    else:
        _add(path, text)


def _add(folder: str, text: str) -> None:
    _file(folder, MESSAGE, lambda stream: stream.write(text.encode("utf-8", "replace")))
    with open(os.path.join(folder, INCIDENT), "rb") as stream:
        facts = json.load(stream)
    facts["message"] = MESSAGE
    _file(folder, INCIDENT, _json(facts))


def _file(folder: str, name: str, write: Writer) -> None:
    path = os.path.join(folder, name)
    with open(path + ".part", "wb") as stream:
        try:
            write(stream)
            stream.flush()
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(path + ".part")
            raise
    os.replace(path + ".part", path)


def _json(facts: Mapping[str, Any]) -> Writer:
    data = (json.dumps(facts, indent=1, default=str) + "\n").encode()
    return lambda stream: stream.write(data)


def _zipped(folder: str) -> str:
    path = folder + ".zip"
    try:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for file in sorted(os.listdir(folder)):
                archive.write(os.path.join(folder, file), file)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    shutil.rmtree(folder, ignore_errors=True)
    return path


def _settle(made: str, out: str, name: str, suffix: str) -> str:
    """Gives what was made its name; several ranks or incidents of one second get a number."""
    for number in range(1, 1000):
        target = os.path.join(out, name + (f"-{number}" if number > 1 else "") + suffix)
        if os.path.lexists(target):
            continue
        try:
            os.rename(made, target)
            return target
        except OSError:
            if not os.path.lexists(target):
                raise
    raise FileExistsError(17, "too many bundles of this second", name)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
