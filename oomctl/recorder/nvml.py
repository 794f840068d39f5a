"""NVIDIA's management library through ctypes: the driver's version, and who else holds memory on a card.

torch itself uses it for the "Process N has" part of its message; no package is needed for it.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from typing import Any, Final

_LIBRARIES: Final = ("libnvidia-ml.so.1", "nvml.dll")
_INSUFFICIENT_SIZE: Final = 7
_UNKNOWN: Final = (1 << 64) - 1
"""What NVML reports where the system does not let it see a process's memory."""


@dataclass(frozen=True, slots=True)
class Process:
    """A process with memory on the card.

    Attributes:
        pid: As the driver counts; in a container it may differ from the process's own view.
        used: Bytes, or None where the driver does not say.
        own: Whether it is the recorded process.
    """

    pid: int
    used: int | None
    own: bool


@dataclass(frozen=True, slots=True)
class Card:
    """What NVML tells; empty where it is not there.

    Attributes:
        driver: Version of the driver, or "".
        processes: Processes with memory on the card.
        total: Bytes of the card.
        used: Bytes in use on it, of all processes.
    """

    driver: str = ""
    processes: tuple[Process, ...] = ()
    total: int | None = None
    used: int | None = None


class _ProcessInfo(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


def card(index: int | None, uuid: str | None = None) -> Card:
    """Asks NVML about one card; never raises.

    Args:
        index: NVML's index of the card; used where no uuid is known.
        uuid: The card's uuid with or without "GPU-", which no environment variable can shift.
    """
    try:
        library = _library()
        if library is None or library.nvmlInit_v2() != 0:
            return Card()
    except (OSError, AttributeError):
        return Card()
    try:
        return _ask(library, index, uuid)
    except (OSError, AttributeError, ValueError, ctypes.ArgumentError):
        return Card()
    finally:
        library.nvmlShutdown()


def _library() -> Any:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def _ask(library: Any, index: int | None, uuid: str | None) -> Card:
    text = ctypes.create_string_buffer(96)
    driver = text.value.decode("ascii", "replace") if library.nvmlSystemGetDriverVersion(text, 96) == 0 else ""
    handle = ctypes.c_void_p()
    found = -1
    if uuid:
        full = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        found = library.nvmlDeviceGetHandleByUUID(full.encode(), ctypes.byref(handle))
    if found != 0 and index is not None:
        found = library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
    if found != 0:
        return Card(driver)
    memory = _Memory()
    known = library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    return Card(
        driver,
        _processes(library, handle),
        int(memory.total) if known else None,
        int(memory.used) if known else None,
    )


def _processes(library: Any, handle: Any) -> tuple[Process, ...]:
    ask = getattr(library, "nvmlDeviceGetComputeRunningProcesses_v3", None)
    if ask is None:
        return ()
    room = 64
    for _ in range(3):
        count = ctypes.c_uint(room)
        rows = (_ProcessInfo * room)()
        code = ask(handle, ctypes.byref(count), rows)
        if code == 0:
            mine = os.getpid()
            return tuple(
                Process(int(row.pid), None if row.used == _UNKNOWN else int(row.used), int(row.pid) == mine)
                for row in rows[: count.value]
            )
        if code != _INSUFFICIENT_SIZE:
            return ()
        room = max(2 * room, int(count.value) + 8)
    return ()
