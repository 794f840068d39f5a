"""One kind of device whose caching allocator can be recorded; private API is used where it exists, never by version."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from oomctl.recorder.settings import Settings

KINDS: Final = ("cuda", "xpu")
"""Namespaces of torch with such an allocator; HIP's is "cuda" too."""

Observer = Callable[[int, int, int, int], None]
"""Called by torch before it raises: device, bytes of the segment asked for, bytes allowed or in all, bytes free."""

_OBSERVERS: Final = ("_{kind}_attach_out_of_memory_observer", "_{kind}_attachOutOfMemoryObserver")


@dataclass(frozen=True, slots=True)
class Sample:
    """Counters of one device; bytes.

    Attributes:
        allocated: Live now.
        peak: Most that was live at once.
        reserved: Held from the driver now.
        retries: Times that the cache was flushed to serve a request.
    """

    allocated: int
    peak: int
    reserved: int
    retries: int


class Backend:
    """torch's namespace of one kind of device.

    Args:
        torch: The program's torch.
        kind: One of `KINDS`.
    """

    def __init__(self, torch: ModuleType, kind: str) -> None:
        self.torch, self.kind = torch, kind
        self.space: Any = getattr(torch, kind)
        self.memory: Any = getattr(self.space, "memory", self.space)
        self.name = "hip" if kind == "cuda" and getattr(torch.version, "hip", None) else kind

    @staticmethod
    def built(torch: ModuleType) -> tuple[Backend, ...]:
        """The kinds that this torch was built for and whose history it can record."""
        found = []
        for kind in KINDS:
            space = getattr(torch, kind, None)
            if space is None or not hasattr(space, "_lazy_call") or not _compiled(torch, kind):
                continue
            backend = Backend(torch, kind)
            if hasattr(backend.memory, "_record_memory_history"):
                found.append(backend)
        return tuple(found)

    def when_initialised(self, call: Callable[[], None]) -> None:
        """Calls back when the program first uses such a device; at once where it has.

        Nothing here touches the device before: variables such as CUDA_VISIBLE_DEVICES are read at that moment, and a
        process that has used CUDA cannot fork any more.
        """
        self.space._lazy_call(call)

    def is_recording(self) -> bool | None:
        """Whether a history is being recorded; None where this torch does not say."""
        ask = getattr(self.torch._C, f"_{self.kind}_isHistoryEnabled", None)
        return None if ask is None else bool(ask())

    def start(self, settings: Settings) -> None:
        """Starts torch's history."""
        wanted: dict[str, Any] = {
            "enabled": "all",
            "context": None if settings.stacks == "none" else settings.context,
            "stacks": "all" if settings.stacks == "all" else "python",
            "max_entries": settings.max_entries,
        }
        record = self.memory._record_memory_history
        with contextlib.suppress(TypeError, ValueError):
            known = inspect.signature(record).parameters
            if "max_entries" in known:
                wanted = {name: value for name, value in wanted.items() if name in known}
        record(**wanted)

    def stop(self) -> None:
        """Stops and forgets the history."""
        self.memory._record_memory_history(enabled=None)

    def observe(self, observer: Observer) -> bool:
        """Has torch call back at each failure; there is no way to take that back. False where it cannot."""
        for pattern in _OBSERVERS:
            attach = getattr(self.torch._C, pattern.format(kind=self.kind), None)
            if attach is not None:
                attach(observer)
                return True
        return False

    def snapshot(self) -> Any:
        """State and history as plain lists and dicts."""
        return self.memory._snapshot()

    def current_device(self) -> int:
        """Ordinal of the current device."""
        return int(self.space.current_device())

    def stats(self, device: int) -> Mapping[str, int]:
        """`memory_stats` of a device, flat."""
        return {str(key): int(value) for key, value in self.space.memory_stats(device).items()}

    def sample(self, device: int) -> Sample:
        """The few counters that lines and alarms need, without flattening the others where that can be helped."""
        ask = getattr(self.torch._C, f"_{self.kind}_memoryStats", None)
        if ask is None:
            stats = self.stats(device)
            return Sample(
                stats.get("allocated_bytes.all.current", 0),
                stats.get("allocated_bytes.all.peak", 0),
                stats.get("reserved_bytes.all.current", 0),
                stats.get("num_alloc_retries", 0),
            )
        nested = ask(device)
        allocated = nested["allocated_bytes"]["all"]
        return Sample(
            int(allocated["current"]),
            int(allocated["peak"]),
            int(nested["reserved_bytes"]["all"]["current"]),
            int(nested.get("num_alloc_retries", 0)),
        )

    def summary(self, device: int) -> str:
        """`memory_summary` of a device."""
        return str(self.space.memory_summary(device))

    def free_and_total(self, device: int) -> tuple[int, int]:
        """Bytes free on the device and of the device, as the driver says."""
        free, total = self.space.mem_get_info(device)
        return int(free), int(total)

    def fraction(self, device: int) -> float | None:
        """Fraction of the device that the process may use; None where this torch does not say."""
        ask = getattr(self.space, "get_per_process_memory_fraction", None)
        if ask is None:
            ask = getattr(self.torch._C, f"_{self.kind}_getMemoryFraction", None)
        return None if ask is None else float(ask(device))

    def limit(self, device: int) -> int | None:
        """Bytes that the allocator may reserve: the fraction's, else what others leave of the device."""
        try:
            free, total = self.free_and_total(device)
            fraction = self.fraction(device)
            reserved = self.sample(device).reserved
        except Exception:  # a private counter that moved; nobody dies of an unknown limit
            return None
        left = free + reserved
        return left if fraction is None else min(int(fraction * total), left)

    def properties(self, device: int) -> dict[str, Any]:
        """Name, size and identity of a device."""
        found = self.space.get_device_properties(device)
        uuid = getattr(found, "uuid", None)
        major, minor = getattr(found, "major", None), getattr(found, "minor", None)
        return {
            "name": str(getattr(found, "name", "")),
            "total": int(getattr(found, "total_memory", 0)) or None,
            "capability": None if major is None else f"{major}.{minor}",
            "architecture": getattr(found, "gcnArchName", None) if self.name == "hip" else None,
            "multiprocessors": getattr(found, "multi_processor_count", None),
            "uuid": None if uuid is None else str(uuid),
        }

    def management_index(self, device: int) -> int | None:
        """Index under which the management library knows a device, or None."""
        ask = getattr(self.space, "_get_nvml_device_index", None)
        with contextlib.suppress(Exception):  # it reads CUDA_VISIBLE_DEVICES, which may hold anything
            return None if ask is None else int(ask(device))
        return None


def _compiled(torch: ModuleType, kind: str) -> bool:
    if kind == "cuda":
        return bool(torch.version.cuda or getattr(torch.version, "hip", None))
    ask = getattr(getattr(torch, kind), "_is_compiled", None)
    return bool(ask and ask())
