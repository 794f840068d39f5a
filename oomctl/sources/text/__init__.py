"""Text inputs: any log, however mangled, becomes figures, tables, series, processes, tracebacks and signs."""

from __future__ import annotations

from collections.abc import Iterable

from oomctl.model.common import Skipped, VersionRange
from oomctl.model.log import TextFindings

__all__ = ["read_text"]


def read_text(chunks: Iterable[bytes], source: int = 0, rank: int | None = None) -> TextFindings:
    """Reads a text input of any length in bounded memory.

    Args:
        chunks: The bytes, cut anywhere; UTF-8, UTF-16 (as PowerShell writes it) or anything ASCII-like.
        source: Index of the input, copied into every finding.
        rank: Rank that the input belongs to, for lines that name none.

    Returns:
        What the text holds; never raises for what it holds.
    """
    from oomctl.sources.text.base import Findings, Passage
    from oomctl.sources.text.merge import failures
    from oomctl.sources.text.normalise import clean
    from oomctl.sources.text.registry import READERS
    from oomctl.sources.text.series import SeriesBook
    from oomctl.sources.text.squeeze import by_worker, squeeze
    from oomctl.sources.text.stream import Figure, stretches

    found = Findings(source, rank)
    book = SeriesBook(source, rank)
    for piece in stretches(chunks):
        if isinstance(piece, Figure):
            book.see(piece)
            continue
        lines = clean(piece.lines, piece.first)
        workers = by_worker(lines)
        passage = Passage(piece, lines, workers, [squeeze(worker) for worker in workers])
        for reader in READERS:
            reader.read(passage, found)
    events = failures(found)
    series = book.finish(found.smi)
    torch = VersionRange()
    for event in events:
        torch = torch & event.torch
    for stated in found.torch:
        torch = torch & stated
    if not torch.known and found.tables:
        newer = any("Requested memory" in t.rows or t.unit_style == "KiB" for t in found.tables)
        torch = VersionRange((2, 0), None) if newer else VersionRange((1, 4), (1, 13))
    skipped = [
        *found.skipped,
        *(Skipped(f"{count} more {kind}", "only the first 2,000 are kept") for kind, count in found.dropped.items()),
    ]
    if book.full:
        skipped.append(Skipped("some printed series", "only the first 256 kinds of figures are kept"))
    return TextFindings(
        oom_events=tuple(events),
        memory_summaries=tuple(sorted(found.tables, key=lambda t: t.line)),
        memory_stats=tuple(found.stats),
        series=series,
        smi=tuple(sorted(found.smi, key=lambda t: t.line)),
        signs=tuple(sorted(found.signs, key=lambda s: s.line)),
        tracebacks=tuple(t.frames for t in found.tracebacks),
        conf=found.conf,
        torch=torch,
        skipped=tuple(skipped),
        kind=_kind(bool(events), found.signs, found, bool(series)),
    )


def _kind(events: bool, signs: object, found: object, series: bool) -> str:
    from oomctl.sources.text.base import Findings

    assert isinstance(found, Findings)
    host = {"cgroup_oom", "kernel_oom", "host_killed", "ray_memory_monitor"}
    if events or any(s.kind in host for s in found.signs):
        return "oom_log"
    if found.tables:
        return "memory_summary"
    if found.stats:
        return "memory_stats"
    if series:
        return "series"
    if found.smi:
        return "nvidia_smi"
    if found.tracebacks or any(s.kind != "progress" for s in found.signs):
        return "traceback"
    return "unknown"
