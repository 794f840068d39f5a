"""`Evidence`: what the inputs prove; every part of it may be missing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from oomctl.model.common import InputFile, Skipped, VersionRange
from oomctl.model.log import MemoryStats, MemorySummary, OomEvent, Series, Sign, SmiTable
from oomctl.model.notebook import Shown
from oomctl.model.stacks import Frame

if TYPE_CHECKING:  # a log is read without knowing what a snapshot is
    from oomctl.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Evidence(Shown):
    """One incident: a snapshot, the log beside it, or either alone.

    Attributes:
        inputs: The files, in the order given.
        snapshots: Decoded snapshots.
        oom_events: Failures that the text names, in order of time.
        memory_summaries: Tables in order of appearance.
        memory_stats: Counters in order of appearance.
        series: Printed series.
        smi: nvidia-smi prints.
        signs: Other lines that bear on the verdict.
        tracebacks: Tracebacks that end in no recognised failure, innermost frame first.
        conf: Settings string found in the text (an exported variable, a bundle's metadata), or None.
        torch: Versions that agree with all inputs.
        skipped: What could not be read, and why.
        reports: Reports of oomctl's own among the inputs (JSON, or embedded in a page), as parsed JSON.
    """

    inputs: tuple[InputFile, ...] = ()
    snapshots: tuple[Snapshot, ...] = ()
    oom_events: tuple[OomEvent, ...] = ()
    memory_summaries: tuple[MemorySummary, ...] = ()
    memory_stats: tuple[MemoryStats, ...] = ()
    series: tuple[Series, ...] = ()
    smi: tuple[SmiTable, ...] = ()
    signs: tuple[Sign, ...] = ()
    tracebacks: tuple[tuple[Frame, ...], ...] = ()
    conf: str | None = None
    torch: VersionRange = VersionRange()
    skipped: tuple[Skipped, ...] = ()
    reports: tuple[Mapping[str, object], ...] = ()
