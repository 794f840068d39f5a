"""What a reader of text is: it looks at a passage of clean lines and adds what it finds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

from oomctl.model.common import Skipped, VersionRange
from oomctl.model.log import MemoryStats, MemorySummary, OomEvent, Sign, SmiTable
from oomctl.model.stacks import Frame
from oomctl.sources.text.normalise import Line
from oomctl.sources.text.squeeze import Squeezed
from oomctl.sources.text.stream import Stretch

LIMIT: Final = 2000
"""Findings of one kind that are kept; more than that are counted only."""


@dataclass(slots=True)
class Passage:
    """A stretch of the input, cleaned.

    Attributes:
        stretch: Which lines it covers and which of them are new.
        lines: All clean lines, in order of appearance.
        workers: The same lines, untangled by worker.
        squeezed: `workers` without white space, in the same order.
    """

    stretch: Stretch
    lines: list[Line]
    workers: list[list[Line]]
    squeezed: list[Squeezed]


@dataclass(slots=True)
class FoundTraceback:
    """A traceback with the lines it spans.

    Attributes:
        frames: Innermost first.
        code: Source line of each frame, "" where there is none.
        first: Number of its first line.
        last: Number of its last line.
        tag: Worker that printed it.
        closing: Text that ends it ("ValueError: ..."), or "".
    """

    frames: tuple[Frame, ...]
    code: tuple[str, ...]
    first: int
    last: int
    tag: str
    closing: str = ""


@dataclass(slots=True)
class RawEvent:
    """A failure as found; several may turn out to be the same.

    Attributes:
        event: What the text says.
        subject: What stands before it on its line (a test's name, "trial#28 failed"), without exception classes.
        numbered: Whether it carries any figure of its own.
        tag: Worker that printed it.
        time: Seconds on the log's clock, or None.
        host: Whether it is about host memory.
        weak: Whether it only counts where the text holds no better mention.
        end: Number of its last line.
        part: Which of the clean lines of its physical line it starts on.
    """

    event: OomEvent
    subject: str = ""
    numbered: bool = True
    tag: str = ""
    time: float | None = None
    host: bool = False
    weak: bool = False
    end: int = 0
    part: int = 0


@dataclass(slots=True)
class Findings:
    """Everything found so far in one input."""

    source: int = 0
    rank: int | None = None
    events: list[RawEvent] = field(default_factory=list)
    tables: list[MemorySummary] = field(default_factory=list)
    stats: list[MemoryStats] = field(default_factory=list)
    smi: list[SmiTable] = field(default_factory=list)
    signs: list[Sign] = field(default_factory=list)
    tracebacks: list[FoundTraceback] = field(default_factory=list)
    conf: str | None = None
    torch: list[VersionRange] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)
    weak: set[tuple[str, int | None]] = field(default_factory=set)
    """Weak mentions that are known already, by kind and rank: one of each is enough."""

    def room(self, kind: str, have: int) -> bool:
        """Whether one more finding of this kind is kept; counts those that are not."""
        if have < LIMIT:
            return True
        self.dropped[kind] = self.dropped.get(kind, 0) + 1
        return False


class Reader(Protocol):
    """Looks for one kind of thing.

    Attributes:
        slug: Stable name.
    """

    slug: str

    def read(self, passage: Passage, found: Findings) -> None:
        """Adds what starts on the passage's new lines (`passage.stretch.accepts`) to `found`."""
        ...
