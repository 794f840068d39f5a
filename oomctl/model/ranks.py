"""`Job`: many ranks of one run: who failed first, who followed, who stands apart and by what."""

from __future__ import annotations

from dataclasses import dataclass

from oomctl.model.common import Skipped

ROLES = ("first", "followed", "failed", "stopped", "outlier", "healthy", "unreadable")
"""first: failed first by the clock; followed: failed later; failed: failed, and no clock says when; stopped: ended by
another rank's failure; outlier: ran, and holds what the others do not; healthy: ran; unreadable: its files tell
nothing."""


@dataclass(frozen=True, slots=True)
class Held:
    """Live bytes of one stack of one rank at its moment.

    Attributes:
        frames: (file, line, function) of the user's frames, innermost first, at most 12.
        bytes: Bytes.
        blocks: Blocks.
    """

    frames: tuple[tuple[str, int, str], ...]
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Digest:
    """What one rank's files say, small enough for thousands of them.

    Attributes:
        name: For people, for example "rank 3".
        rank: Global rank, or None.
        host: Host that its name tells, or "".
        stage: Coordinates that its name tells, for example (("pp", 1),).
        paths: Its files.
        cls: Verdict class; "" where nothing could be read.
        subtype: Verdict subtype, or None.
        code: Verdict code.
        confidence: Of the verdict.
        headline: Of the verdict.
        failed: It ran out of memory.
        stopped: Its text says that another process's end stopped it.
        time_us: When it failed, microseconds since the epoch, or None.
        active: Live bytes at its moment, or None.
        reserved: Reserved bytes at its moment, or None.
        peak: Highest live bytes of its trace, or None.
        held: Its largest stacks.
        rest: Live bytes of all other stacks.
        site: "file.py:28 function" of the first culprit, or "".
        trouble: Why nothing, or not everything, could be read.
        report: Its report: JSON, compressed with zlib; b"" where there is none.
    """

    name: str
    rank: int | None
    host: str = ""
    stage: tuple[tuple[str, int], ...] = ()
    paths: tuple[str, ...] = ()
    cls: str = ""
    subtype: str | None = None
    code: str = ""
    confidence: str = ""
    headline: str = ""
    failed: bool = False
    stopped: bool = False
    time_us: int | None = None
    active: int | None = None
    reserved: int | None = None
    peak: int | None = None
    held: tuple[Held, ...] = ()
    rest: int = 0
    site: str = ""
    trouble: str = ""
    report: bytes = b""


@dataclass(frozen=True, slots=True)
class RankRow:
    """One rank in the table of all.

    Attributes:
        name: For people.
        rank: Global rank, or None.
        role: One of `ROLES`.
        cls: Verdict class, "" where nothing could be read.
        host: Host, or "".
        stage: For example "pp 1", or "".
        code: Verdict code.
        headline: Verdict in a sentence, "" where nothing is wrong; why not, where nothing could be read.
        time_us: When it failed, or None.
        lag_us: Microseconds after the first failure, or None.
        active: Live bytes at its moment.
        reserved: Reserved bytes at its moment.
        peak: Highest live bytes.
        excess: Live bytes at its peak above the median of its stage.
        page: Relative address of a page of its own, or "".
    """

    name: str
    rank: int | None
    role: str
    cls: str
    host: str = ""
    stage: str = ""
    code: str = ""
    headline: str = ""
    time_us: int | None = None
    lag_us: int | None = None
    active: int | None = None
    reserved: int | None = None
    peak: int | None = None
    excess: int | None = None
    page: str = ""


@dataclass(frozen=True, slots=True)
class OutlierPlace:
    """A place where one rank holds more than the others: bytes of the rank, of the median rank, the difference."""

    file: str
    line: int
    function: str
    bytes: int
    median: int
    excess: int


@dataclass(frozen=True, slots=True)
class Outlier:
    """A rank that stands apart.

    Attributes:
        name: For people.
        rank: Global rank, or None.
        bytes: Its highest live bytes.
        median: Those of the median rank of its stage.
        excess: Bytes that its places hold above the median rank's.
        places: What sets it apart, largest first.
    """

    name: str
    rank: int | None
    bytes: int
    median: int
    excess: int
    places: tuple[OutlierPlace, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over all ranks, bytes."""

    name: str
    low: int
    low_name: str
    median: int
    high: int
    high_name: str


@dataclass(frozen=True, slots=True)
class Stage:
    """Ranks with the same coordinate.

    Attributes:
        name: For example "pp 1".
        ranks: Their number.
        median: Median of their peaks, bytes.
        high: Highest peak, bytes.
        high_name: Whose.
        share: median over the median of the largest stage.
    """

    name: str
    ranks: int
    median: int
    high: int
    high_name: str
    share: float


@dataclass(frozen=True, slots=True)
class Job:
    """All ranks of one run.

    Attributes:
        headline: One sentence.
        ranks: Ranks whose files were found.
        read: Of these, those that could be read.
        failed: Of these, those that ran out of memory.
        clock: What the order of failures rests on: "trace", "log", or "" where nothing tells it.
        rows: One a rank, in order of rank.
        outliers: Ranks that stand apart, most first.
        spreads: Figures over all ranks.
        stages: Ranks by coordinate.
        missing: Ranks of which no file was found, such as "4" or "7-9".
        limits: What could not be told.
    """

    headline: str
    ranks: int
    read: int
    failed: int
    clock: str
    rows: tuple[RankRow, ...]
    outliers: tuple[Outlier, ...] = ()
    spreads: tuple[Spread, ...] = ()
    stages: tuple[Stage, ...] = ()
    missing: tuple[str, ...] = ()
    limits: tuple[Skipped, ...] = ()
