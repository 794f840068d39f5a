"""Each row of a memory_summary table explained, and the seeds of doubt in it.

Rows and identities are those of torch/cuda/memory.py and CUDACachingAllocator (1.4 to 2.14): requested <= active,
allocated <= active <= reserved; active - allocated waits for another stream; active - requested is rounding.
"""

from __future__ import annotations

from typing import Final

from oomctl.diagnosis.text_opinion import percent, size
from oomctl.diagnosis.text_picture import Table, from_summary
from oomctl.model.log import MemorySummary
from oomctl.model.report import TableNote

ALARM: Final = 0.35
"""Idle over reserved that is customarily called fragmentation; printed after a failure it proves nothing by itself."""

MEANING: Final = {
    "Allocated memory": "blocks that tensors hold now",
    "Active memory": "allocated, plus blocks freed by the program that another stream may still use",
    "Requested memory": "what the program asked for, before rounding",
    "GPU reserved memory": "what the allocator took from the driver: live, idle and cached",
    "Non-releasable memory": "idle parts of segments that also hold something live: no flush returns them",
    "Allocations": "live blocks",
    "Active allocs": "live blocks, plus those that wait for another stream",
    "GPU reserved segments": "pieces taken from the driver (expandable ranges are not counted)",
    "Non-releasable allocs": "idle pieces between live blocks",
    "Oversize allocations": "blocks at or above max_split_size_mb",
    "Oversize GPU segments": "segments at or above max_split_size_mb",
}


def notes(summaries: tuple[MemorySummary, ...]) -> tuple[TableNote, ...]:
    """Remarks on every row of every table.

    Args:
        summaries: Tables in order.
    """
    out: list[TableNote] = []
    for index, summary in enumerate(summaries):
        t = from_summary(summary)
        out.extend(_header(index, summary))
        for row in summary.rows:
            doubt = _doubt(row, t)
            text = MEANING.get(row, "")
            out.append(TableNote(index, row, f"{text}; {doubt}" if doubt else text, bool(doubt)))
    return tuple(out)


def _header(index: int, summary: MemorySummary) -> list[TableNote]:
    out = []
    if summary.num_ooms is not None:
        out.append(
            TableNote(
                index,
                "CUDA OOMs",
                "allocations that failed for good" if summary.num_ooms else "no allocation failed",
                summary.num_ooms > 0,
            )
        )
    if summary.num_alloc_retries is not None:
        retries, ooms = summary.num_alloc_retries, summary.num_ooms or 0
        text = "times the driver refused and the cache was flushed"
        if retries > ooms:
            text += f"; {retries - ooms} of them then worked, at the cost of a synchronisation"
        out.append(TableNote(index, "cudaMalloc retries", text, retries > 0))
    return out


def _doubt(row: str, t: Table) -> str:
    if row == "Allocated memory" and t.cur is not None and t.peak:
        if t.cur <= 0.5 * t.peak:
            return f"{size(t.peak - t.cur)} of the peak are gone now: a passing peak, or the exception released them"
        if t.cur >= 0.98 * t.peak and (t.ooms or 0) > 0:
            return "it stands at its highest ever: growth, or the first time this much was needed"
    if row == "Active memory" and t.active is not None and t.cur is not None and t.active > t.cur:
        return f"{size(t.active - t.cur)} are freed but wait for another stream"
    if row == "Requested memory" and t.rounding is not None and t.active and t.rounding >= 0.05 * t.active:
        return f"{size(t.rounding)} ({percent(t.rounding / t.active)}) of active memory is rounding"
    if row == "GPU reserved memory" and t.reserved:
        idle = t.reserved - (t.cur or 0)
        parts = []
        if idle >= ALARM * t.reserved:
            parts.append(
                f"{percent(idle / t.reserved)} of it is idle, above the customary alarm of 35 %, which alone proves "
                f"nothing: "
                "a cache left over from a peak looks the same"
            )
        if t.reserved_freed == 0 and (t.retries or 0) > 0:
            parts.append("it only ever grew: no segment was ever wholly free when the cache was flushed")
        if t.peak is not None and t.reserved - t.peak >= 0.25 * t.reserved and (t.ooms or 0) > 0:
            parts.append(
                f"{size(t.reserved - t.peak)} were idle even at the live peak: memory that could not be reused"
            )
        return "; ".join(parts)
    if row == "Non-releasable memory" and t.non_releasable and t.reserved and t.non_releasable >= 0.15 * t.reserved:
        return f"{percent(t.non_releasable / t.reserved)} of reserved is pinned by live neighbours"
    return ""
