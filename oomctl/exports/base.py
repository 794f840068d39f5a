"""What a format gets and what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from oomctl.analysis.choose import chosen_device
from oomctl.errors import OomctlError
from oomctl.model.evidence import Evidence
from oomctl.model.report import WhatIf
from oomctl.model.snapshot import DeviceSnapshot, Snapshot, Trace
from oomctl.progress import Progress, silent

Judge = Callable[[Evidence], str]
"""The class of the verdict on some evidence."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be written.

    Attributes:
        evidence: What was read.
        device: Device ordinal; None is the one that failed, else the one with the longest trace.
        table: Name of a table; "" is the format's choice.
        at: "oom", "peak", "leak", "end", the index of an event, or None for the format's choice.
        last: Keep this many events, the last ones; None keeps all.
        around: Keep the events around this moment: "oom", "peak" or the index of an event; None keeps all.
        reduce: Make a reproducer as small as possible.
        limit: Bytes that the allocator could reserve, where known.
        judge: Concludes, for a reducer that is to keep the verdict.
        whatif: Replays under other settings, for their table.
        progress: Called with what is being done and the share done, 0 to 1.
    """

    evidence: Evidence
    device: int | None = None
    table: str = ""
    at: str | None = None
    last: int | None = None
    around: str | None = None
    reduce: bool = False
    limit: int | None = None
    judge: Judge | None = None
    whatif: Callable[[], WhatIf] | None = None
    progress: Progress = field(default=silent)

    def chosen(self) -> tuple[Snapshot, DeviceSnapshot]:
        """The snapshot and the device that it is about.

        Raises:
            OomctlError: There is none.
        """
        return chosen_device(self.evidence.snapshots, self.device)


class Format(Protocol):
    """One format: its name, how its files end, and what it says."""

    @property
    def name(self) -> str:
        """What the user types."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """Endings of its files, lower case; the longest that fits decides."""

    @property
    def what(self) -> str:
        """One line for people."""

    def write(self, job: Job, path: str) -> tuple[str, ...]:
        """Writes the file.

        Args:
            job: What is to be written.
            path: Where; the file is there and empty.

        Returns:
            Remarks for the user, one a line: what was left out, how it was checked.

        Raises:
            OomctlError: The input lacks what the format shows.
        """


def trace_of(device: DeviceSnapshot) -> Trace:
    """The events of a device.

    Raises:
        OomctlError: There are none.
    """
    if device.trace is None or not len(device.trace):
        raise OomctlError(
            f"the snapshot has no events for GPU {device.index}, only the state at its end",
            "call torch.cuda.memory._record_memory_history() when the program starts, and dump before turning it off",
        )
    return device.trace


def extra(package: str, option: str) -> OomctlError:
    """What to tell where an optional package is missing."""
    return OomctlError(f"{package} is not installed, which this needs", f"pip install 'oomctl[{option}]'")
