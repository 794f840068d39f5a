"""`Holdings`: who holds the live bytes of one device at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from oomctl.model.common import InputFile, Skipped
from oomctl.model.report import Device, StackLine


@dataclass(frozen=True, slots=True)
class HoldingRow:
    """Live blocks that belong together.

    Attributes:
        bytes: Live bytes, pending frees and rests too small to split off included.
        blocks: Number of blocks.
        share: bytes over all live bytes of the moment, 0 to 1.
        file: Path of the innermost frame of the user's, "" where no stack was recorded or rows are sizes.
        line: Line number, 0 unknown.
        function: Name of the function, or what the row is where there is no frame.
        stack: The largest stack of the row, user frames first, library frames folded.
        size: Bytes of each block where rows are sizes, else None.
        stacks: Distinct stacks in the row.
    """

    bytes: int
    blocks: int
    share: float
    file: str = ""
    line: int = 0
    function: str = ""
    stack: tuple[StackLine, ...] = ()
    size: int | None = None
    stacks: int = 0


@dataclass(frozen=True, slots=True)
class Holdings:
    """Who holds the live bytes at one moment; the rows sum to `active`.

    Attributes:
        inputs: The files.
        device: The device.
        at: oom, peak, end or event.
        event: Trace index of the last event that has happened, -1 without a trace.
        events_total: Events in the trace.
        time_us: Microseconds since the epoch, or None without a clock.
        by: frame, stack or size.
        active: Live bytes, pending frees included.
        pending: Of these, freed by the program and awaiting another stream.
        reserved: Reserved bytes.
        blocks: Live blocks.
        rows: Largest first.
        limits: What could not be told.
    """

    inputs: tuple[InputFile, ...]
    device: Device
    at: str
    event: int
    events_total: int
    time_us: int | None
    by: str
    active: int
    pending: int
    reserved: int
    blocks: int
    rows: tuple[HoldingRow, ...]
    limits: tuple[Skipped, ...] = ()
