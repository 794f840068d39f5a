"""What renderers show of a report: text and ratios, no numbers to format."""

from __future__ import annotations

from dataclasses import dataclass

from oomctl.report.books import Books
from oomctl.report.tables import TableView


@dataclass(frozen=True, slots=True)
class Evidence:
    """One statement and the numbers that carry it, as (name, text)."""

    statement: str
    numbers: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class CulpritView:
    """A culprit; `where` is "file:line", `stack` lines are (file:line, function, kind).

    Rows with `caller` hold what other rows hold and are not summed.
    """

    rank: int
    bytes: str
    share: str
    ratio: float
    blocks: str
    where: str
    function: str
    role: str
    role_slug: str
    caller: bool
    accumulation: bool
    category: str
    source: str
    stack: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class CulpritsView:
    """The ranking; rows (without callers and those that only asked) and the rest sum to the total, "" for nothing."""

    title: str
    basis: str
    rows: tuple[CulpritView, ...]
    rest: CulpritView | None
    total: str
    total_blocks: str


@dataclass(frozen=True, slots=True)
class HoleRow:
    """Free blocks of one range of sizes."""

    range: str
    count: str
    bytes: str
    ratio: float
    fits: bool


@dataclass(frozen=True, slots=True)
class HolesView:
    """The histogram of holes; `verdict` says in a sentence how they compare with the request."""

    title: str
    need: str
    largest: str
    verdict: str
    rows: tuple[HoleRow, ...]
    total_count: str
    total_bytes: str


@dataclass(frozen=True, slots=True)
class StepView:
    """One step as text; the bar is its floor over the highest peak, `peak_ratio` the peak."""

    label: str
    floor: str
    change: str
    peak: str
    ratio: float
    peak_ratio: float
    warmup: bool


@dataclass(frozen=True, slots=True)
class StepsView:
    """Steps, and in a sentence what they show."""

    verdict: str
    rows: tuple[StepView, ...]


@dataclass(frozen=True, slots=True)
class RemedyView:
    """A remedy; `paste` is a line for a shell, `example` lines of code, `replay` a sentence."""

    title: str
    kind: str
    applicability: str
    applicability_slug: str
    paste: str
    why: str
    caveats: tuple[str, ...]
    replay: str
    location: str
    example: str


@dataclass(frozen=True, slots=True)
class RunView:
    """One replayed setting."""

    conf: str
    peak_reserved: str
    ratio: float
    peak_allocated: str
    served: str
    served_slug: str
    retries: str
    device_allocs: str
    smallest_limit: str
    certainty: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhatIfView:
    """The replays, and a sentence on how well the replay reproduces the recording."""

    identity: str
    limit: str
    rows: tuple[RunView, ...]
    verdict: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SeriesView:
    """A printed series: first, last, extremes and the change a point, as text."""

    name: str
    summary: str
    points: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class View:
    """Everything that is shown of one device."""

    severity: str
    cls: str
    title: str
    code: str
    confidence: str
    subtype: str
    headline: str
    context: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    conf_issues: tuple[tuple[str, str], ...]
    books: Books | None
    evidence: tuple[Evidence, ...]
    contributing: tuple[tuple[str, str, str], ...]
    holes: HolesView | None
    steps: StepsView | None
    culprits: CulpritsView | None
    categories: tuple[tuple[str, str, str, float, str], ...]
    remedies: tuple[RemedyView, ...]
    whatif: WhatIfView | None
    tables: tuple[TableView, ...]
    series: tuple[SeriesView, ...]
    limits: tuple[tuple[str, str, str], ...]
    device: str
    fingerprint: str
    others: tuple[View, ...]

    @property
    def line(self) -> str:
        """The verdict as one line: ``error[OOM101] fragmentation: ...``."""
        return f"{self.severity}[{self.code}] {self.cls}: {self.headline}"
