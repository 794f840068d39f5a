"""What to record and when to write it out."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Final

from oomctl.errors import OomctlError
from oomctl.units import parse_size

STACKS: Final = ("python", "all", "none")
"""Kinds of stacks: Python frames; C++ frames among them (dumps up to a hundred times slower); none."""

CONTEXTS: Final = ("alloc", "all")
"""Events that carry a stack: allocations, or frees too."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a recording.

    Attributes:
        out: Folder for the bundles; relative to where the recording starts.
        max_entries: Events that the ring keeps; the oldest are overwritten. 200,000 took 70 MB of host memory with
            Python stacks of 15 to 30 frames (torch 2.11), and hold some 60 steps of 1,000 allocations.
        stacks: One of `STACKS`.
        context: One of `CONTEXTS`. Stacks of frees are off by default: torch gathers them while an exception may be
            on its way, which was seen (torch 2.11) to turn the early stop of activation checkpointing into a
            SystemError; a recording must never change what the job does.
        max_dumps: Bundles of failures that are kept: the first ones, and the latest in the last place.
        every_minutes: Write the state out every so many minutes; 0 never.
        watermark: Write the state out once when reserved memory passes this: "90%" of what torch may use, or a size
            such as "20GiB"; "" never.
        at_exit: Write the state out when the program ends.
        signal: Name of a signal on which the state is written out, for example "SIGUSR2"; "" none.
        lines_every: Print a line on memory every so many steps; 0 never.
        alarm: Warn about memory that grows from step to step, idles, or had to be flushed.
        as_zip: Write each bundle as one zip file.
        require_device: Fail where torch can use no device whose memory could be recorded.
    """

    out: str = "."
    max_entries: int = 200_000
    stacks: str = "python"
    context: str = "alloc"
    max_dumps: int = 3
    every_minutes: float = 0.0
    watermark: str = ""
    at_exit: bool = False
    signal: str = ""
    lines_every: int = 0
    alarm: bool = True
    as_zip: bool = False
    require_device: bool = False

    def __post_init__(self) -> None:
        if self.stacks not in STACKS:
            raise OomctlError(f"no stacks {self.stacks!r}", "one of " + ", ".join(STACKS))
        if self.context not in CONTEXTS:
            raise OomctlError(f"no context {self.context!r}", "one of " + ", ".join(CONTEXTS))
        for name, value, least in (
            ("max_entries", self.max_entries, 1),
            ("max_dumps", self.max_dumps, 0),
            ("lines_every", self.lines_every, 0),
            ("every_minutes", self.every_minutes, 0),
        ):
            if not value >= least:
                raise OomctlError(f"{name} is {value}, and the least is {least}")
        signal_number(self.signal)
        watermark_bytes(self.watermark, 1)


def signal_number(name: str) -> int | None:
    """Number of a signal by name, with or without "SIG"; None for "".

    Raises:
        OomctlError: There is no such signal here, or no program can handle it.
    """
    if not name:
        return None
    full = name.upper() if name.upper().startswith("SIG") else "SIG" + name.upper()
    number = getattr(signal, full, None)
    if not isinstance(number, signal.Signals) or full in ("SIGKILL", "SIGSTOP"):
        raise OomctlError(f"no signal {name!r} that a program could handle here", "for example SIGUSR2")
    return int(number)


def watermark_bytes(text: str, limit: int | None) -> int | None:
    """Bytes of a watermark; None for "", or for a percentage while the limit is unknown.

    Args:
        text: "90%" or a size.
        limit: Bytes that torch may use; None when unknown.

    Raises:
        OomctlError: Neither a percentage nor a size.
    """
    if not text:
        return None
    try:
        if text.endswith("%"):
            share = float(text[:-1]) / 100
            if not 0 < share <= 1:
                raise ValueError
            return None if limit is None else int(share * limit)
        return parse_size(text)
    except ValueError:
        raise OomctlError(f"no watermark: {text!r}", "write 90% or 20GiB") from None
