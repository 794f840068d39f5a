"""What a snapshot lacks, asked at the moment of the failure; what cannot be had is noted, not guessed."""

from __future__ import annotations

import json
import os
import pickle
import platform
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, Final, TypeVar

from oomctl import __version__
from oomctl.recorder.backend import Backend
from oomctl.recorder.bundle import SNAPSHOT, Writer
from oomctl.recorder.errors_seen import is_ours
from oomctl.recorder.nvml import card
from oomctl.recorder.rank import Rank
from oomctl.recorder.say import reason as why

SCHEMA: Final = "oomctl.incident/1"

VARIABLES: Final = (
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_HIP_ALLOC_CONF",
    "PYTORCH_NO_CUDA_MEMORY_CACHING",
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING",
    "CUBLAS_WORKSPACE_CONFIG",
)
"""Variables that bear on memory; no other one is written down, for others hold secrets."""

T = TypeVar("T")


class Facts:
    """Collects facts about one incident.

    Args:
        backend: The kind of device; None where torch has none.
        device: Ordinal.
    """

    def __init__(self, backend: Backend | None, device: int) -> None:
        self.backend, self.device = backend, device
        self.notes: list[str] = []

    def ask(self, what: str, call: Callable[[], T]) -> T | None:
        """The answer, or None with a note on why there is none."""
        try:
            return call()
        except Exception as error:  # private API of any torch: whatever it raises, the rest is still wanted
            self.notes.append(f"{what}: {why(error)}")
            return None

    def collect(
        self, *, cause: str, moment: str, rank: Rank, request: dict[str, int] | None, counters: dict[str, Any]
    ) -> dict[str, Any]:
        """Everything for incident.json; see `oomctl.recorder.bundle`.

        Args:
            cause: oom, exception, signal, interval, watermark, exit or call.
            moment: "at" while nothing has been unwound, "after" once it has.
            rank: Place in the job.
            request: What torch told its observer, or None.
            counters: Step, failures so far, and the recording's own settings.
        """
        facts: dict[str, Any] = {
            "schema": SCHEMA,
            "oomctl_version": __version__,
            "cause": cause,
            "moment": moment,
            "message": None,
            "time_us": time.time_ns() // 1000,
            "rank": rank.rank,
            "local_rank": rank.local,
            "world_size": rank.world,
            "pid": os.getpid(),
            "program": [str(arg) for arg in sys.argv[:1]],
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "environment": {name: os.environ[name] for name in VARIABLES if name in os.environ},
            "request": request,
            **counters,
        }
        facts |= self._device()
        facts["notes"] = self.notes
        return facts

    def files(self) -> dict[str, Writer]:
        """The bundle's other files, the large one last."""
        files: dict[str, Writer] = {"stack.txt": _text(stacks)}
        backend, device = self.backend, self.device
        if backend is not None:
            known = backend
            files["memory_stats.json"] = _text(lambda: json.dumps(dict(known.stats(device)), indent=1) + "\n")
            files["memory_summary.txt"] = _text(lambda: known.summary(device) + "\n")
            files[SNAPSHOT] = lambda stream: pickle.Pickler(stream, protocol=4).dump(known.snapshot())
        return files

    def _device(self) -> dict[str, Any]:
        backend, device = self.backend, self.device
        if backend is None:
            return {"backend": None, "device": None}
        version = backend.torch.version
        found: dict[str, Any] = {
            "backend": backend.name,
            "torch": str(backend.torch.__version__),
            "cuda": getattr(version, "cuda", None),
            "hip": getattr(version, "hip", None),
        }
        properties = self.ask("device", lambda: backend.properties(device)) or {}
        found["device"] = {"index": device, **properties}
        memory = self.ask("mem_get_info", lambda: backend.free_and_total(device))
        found["mem_get_info"] = None if memory is None else {"free": memory[0], "total": memory[1]}
        stats = self.ask("memory_stats", lambda: backend.stats(device)) or {}
        found["allocated"] = stats.get("allocated_bytes.all.current")
        found["reserved"] = stats.get("reserved_bytes.all.current")
        found["fraction"] = self.ask("fraction", lambda: backend.fraction(device))
        if backend.name == "cuda":
            known = card(backend.management_index(device), properties.get("uuid"))
            found["driver"] = known.driver or None
            found["processes"] = [{"pid": p.pid, "used": p.used, "own": p.own} for p in known.processes]
            found["card"] = None if known.total is None else {"total": known.total, "used": known.used}
        return found


def _text(make: Callable[[], str]) -> Writer:
    return lambda stream: stream.write(make().encode("utf-8", "replace"))


def stacks() -> str:
    """The Python stacks of all threads, the current one first, as text."""
    import threading

    names = {thread.ident: thread.name for thread in threading.enumerate()}
    current = threading.get_ident()
    frames = sorted(sys._current_frames().items(), key=lambda item: item[0] != current)
    texts = []
    for ident, frame in frames[:64]:
        mark = " (this one asked)" if ident == current else ""
        stack = traceback.StackSummary.extract(traceback.walk_stack(frame), limit=200, lookup_lines=True)
        stack.reverse()
        while stack and is_ours(stack[0].filename):
            del stack[0]
        while stack and is_ours(stack[-1].filename):
            del stack[-1]
        texts.append(f"Thread {names.get(ident, ident)}{mark}, most recent call last:\n" + "".join(stack.format()))
    return "\n".join(texts)
