"""`Diff`: what changed in memory between two runs, row by row, summing to the change of the whole."""

from __future__ import annotations

from dataclasses import dataclass

from oomctl.model.common import InputFile, Skipped, VersionRange
from oomctl.model.report import Device, StackLine

STATUSES = ("new", "grown", "shrunk", "gone")
"""Kinds of rows; what did not change is only counted."""


@dataclass(frozen=True, slots=True)
class Curve:
    """Allocated bytes over the trace, thinned; highest and lowest points of each stretch are kept.

    Attributes:
        event: Trace index of each point.
        allocated: Bytes after that event.
        reserved: Bytes after that event.
        moment: Trace index that the comparison is about.
    """

    event: tuple[int, ...]
    allocated: tuple[int, ...]
    reserved: tuple[int, ...]
    moment: int


@dataclass(frozen=True, slots=True)
class DiffSide:
    """One of the two runs at its moment. Sizes in bytes, None where the input does not tell.

    Attributes:
        inputs: The files.
        device: The device.
        torch: Versions that could have run.
        alloc_conf: Settings string, "" for the defaults, None unknown.
        at: peak, oom or end.
        event: Trace index of the moment, -1 without a trace.
        allocated: Bytes at the moment: requests as the allocator rounds them, however they were laid out.
        blocks: Their number.
        reserved: Reserved bytes at the moment.
        peak_allocated: Highest allocated bytes of the whole trace.
        peak_reserved: Highest reserved bytes of the whole trace.
        failed: The run ended in a fatal out-of-memory failure.
        source: "snapshot" or "report".
        curve: Memory over the trace, or None.
    """

    inputs: tuple[InputFile, ...]
    device: Device
    torch: VersionRange
    alloc_conf: str | None
    at: str
    event: int
    allocated: int
    blocks: int | None
    reserved: int | None
    peak_allocated: int
    peak_reserved: int | None
    failed: bool
    source: str = "snapshot"
    curve: Curve | None = None


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One place whose bytes changed.

    Attributes:
        status: new, grown, shrunk or gone.
        change: Bytes after less bytes before.
        bytes_before: Bytes before.
        bytes_after: Bytes after.
        blocks_before: Blocks before; None unknown.
        blocks_after: Blocks after; None unknown.
        file: Path of the user's innermost frame, as AFTER has it (as BEFORE has it where it is gone).
        line: Line number.
        function: Name, or what the row is where there is no frame.
        line_before: Line number in BEFORE where it has moved, else None.
        stack: Largest stack, user frames first, library frames folded.
    """

    status: str
    change: int
    bytes_before: int
    bytes_after: int
    blocks_before: int | None
    blocks_after: int | None
    file: str
    line: int
    function: str
    line_before: int | None = None
    stack: tuple[StackLine, ...] = ()


@dataclass(frozen=True, slots=True)
class SettingChange:
    """An option of the allocator, or the version of torch, that differs; None where it was not set or is unknown."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class StepPair:
    """The same step of both runs; bytes.

    Attributes:
        label: Name of the step.
        peak_before: Highest allocated bytes within it.
        peak_after: Highest allocated bytes within it.
        floor_before: Allocated bytes when it began.
        floor_after: Allocated bytes when it began.
    """

    label: str
    peak_before: int
    peak_after: int
    floor_before: int
    floor_after: int


@dataclass(frozen=True, slots=True)
class DiffSteps:
    """Steps of both runs side by side.

    Attributes:
        name: What marks them.
        pairs: Steps that both have, in order, evenly thinned.
        total_before: Steps found.
        total_after: Steps found.
        paired: Steps that both have.
        peak_change: Median change of a step's peak, bytes.
        floor_growth_before: Median growth of the floor, bytes per step.
        floor_growth_after: Median growth of the floor, bytes per step.
    """

    name: str
    pairs: tuple[StepPair, ...]
    total_before: int
    total_after: int
    paired: int
    peak_change: int
    floor_growth_before: int
    floor_growth_after: int


@dataclass(frozen=True, slots=True)
class Guard:
    """What `--fail-if-grown` found.

    Attributes:
        tolerance: As typed.
        allowed: Bytes that the allocated peak may grow by.
        grown: Bytes that it grew by; negative where it shrank.
        failed: Whether the run is to fail.
        reason: Why, in a sentence.
    """

    tolerance: str
    allowed: int
    grown: int
    failed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Diff:
    """Two runs compared; `change` is the sum of the rows' changes.

    Attributes:
        oomctl_version: Version that compared.
        before: The first run.
        after: The second run.
        by: What rows are: stack, frame or size.
        measure: "allocated" (the program's requests as rounded, not what waits for another stream) or "active" (with
            what waits; all that saved reports hold).
        change: Bytes allocated after less before, at the moments compared.
        headline: One sentence.
        rows: Largest change first.
        same_rows: Places that did not change.
        same_bytes: Bytes that they hold.
        settings: Options that differ.
        steps: Steps side by side, or None.
        guard: The gate, or None.
        limits: What could not be told.
    """

    oomctl_version: str
    before: DiffSide
    after: DiffSide
    by: str
    measure: str
    change: int
    headline: str
    rows: tuple[DiffRow, ...]
    same_rows: int
    same_bytes: int
    settings: tuple[SettingChange, ...] = ()
    steps: DiffSteps | None = None
    guard: Guard | None = None
    limits: tuple[Skipped, ...] = ()
