"""The books as rows that sum: where every byte of the card was, and where every byte of the reserved memory was."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oomctl.model.report import Budget
from oomctl.report.texts import percent, ratio
from oomctl.units import format_size

SOURCES: Final = {
    "trace": "from the snapshot, rolled back to the moment of the failure",
    "segments": "from the snapshot's segments; without a trace this is the moment of the dump",
    "message": "from the error message, so to the printed digits",
    "memory_summary": "from the memory_summary table, so to the printed digits",
}
PEAK: Final = "from the snapshot, rolled back to the peak"


@dataclass(frozen=True, slots=True)
class BookRow:
    """One row: a key for its colour, a label, its bytes as text, its share of the total as text and as a ratio."""

    key: str
    label: str
    bytes: int
    text: str
    share: str
    ratio: float


@dataclass(frozen=True, slots=True)
class Books:
    """The books of one moment.

    Attributes:
        title: What is booked, for example "24.00 GiB of the card".
        whole: What the rows sum to, for example "The card".
        total: Its size as text.
        rows: They sum to the total.
        reserved: The rows of PyTorch's reserved memory again, as shares of it.
        reserved_total: Its size as text, or "".
        reserved_start: Where the reserved memory begins within the whole, 0 to 1.
        reserved_end: Where it ends.
        source: Where the numbers are from.
        notes: Sentences: the shortage, the limit, whether the books close.
    """

    title: str
    whole: str
    total: str
    rows: tuple[BookRow, ...]
    reserved: tuple[BookRow, ...]
    reserved_total: str
    reserved_start: float
    reserved_end: float
    source: str
    notes: tuple[str, ...]


def build_books(
    budget: Budget | None, need: int | None, asked: int | None = None, *, failed: bool = True
) -> Books | None:
    """Rows and notes of a budget; None when it says nothing that could be summed.

    Args:
        budget: The books of the report.
        need: Bytes that the request needs, a segment of its own, or None.
        asked: Bytes that it asked for, or None.
        failed: False where the moment is the peak of a run without a failure.
    """
    if budget is None:
        return None
    inside = _inside(budget)
    outside = [
        ("others", "Other processes", budget.other_processes),
        ("context", "This process, outside PyTorch", budget.non_pytorch),
    ]
    if budget.other_processes is None or budget.non_pytorch is None:
        outside.append(("others", "Outside PyTorch (other processes, CUDA itself)", budget.outside))
    rows = [row for row in outside if row[2]] + inside
    if not rows:
        return None
    if budget.device_total is not None:
        whole, total = "The card", budget.device_total
        rows += [("free", "Free on the card", budget.free), ("unexplained", "Unexplained", budget.unexplained)]
        rows = [row for row in rows if row[2]]
        rest = total - sum(row[2] or 0 for row in rows)
        if rest:
            label = "Not told by the inputs" if rest > 0 else "Counted twice (numbers of different moments)"
            rows.append(("unexplained", label, rest))
    else:
        whole, total = "Reserved by PyTorch", sum(row[2] or 0 for row in inside)
        rows = inside
    reserved_total = sum(row[2] or 0 for row in inside)
    before = sum(row[2] or 0 for row in outside if row[2]) if budget.device_total is not None else 0
    return Books(
        f"the card's {format_size(total)}" if whole == "The card" else f"{format_size(total)} reserved by PyTorch",
        whole,
        format_size(total),
        _rows(rows, total),
        _rows(inside, reserved_total),
        format_size(reserved_total) if inside else "",
        ratio(before, total),
        ratio(before + reserved_total, total),
        SOURCES.get(budget.source, "") if failed or budget.source != "trace" else PEAK,
        tuple(_notes(budget, need, asked)),
    )


def _rows(rows: list[tuple[str, str, int | None]], total: int) -> tuple[BookRow, ...]:
    return tuple(
        BookRow(key, label, size or 0, format_size(size or 0), percent(size or 0, total), ratio(size, total))
        for key, label, size in rows
    )


def _inside(budget: Budget) -> list[tuple[str, str, int | None]]:
    """Rows that sum to the reserved memory, or to what is known of it."""
    live = budget.active if budget.active is not None else budget.allocated
    rows: list[tuple[str, str, int | None]] = []
    if budget.requested is not None:
        rows += [
            ("live", "In use by tensors", budget.requested),
            ("rounding", "Rounding inside their blocks", budget.rounding),
            ("pending", "Freed, waiting for another stream", budget.pending_free),
        ]
        known = sum(row[2] or 0 for row in rows)
        if budget.pending_free and live is not None and known == live + budget.pending_free:
            # The requested bytes of pending blocks are inside `requested` already when active counts them.
            rows[0] = ("live", "In use by tensors", budget.requested - budget.pending_free)
    elif live is not None:
        rows.append(("live", "In use by tensors", live))
    # Where nothing else is told apart, the inputs do not say what keeps the idle memory.
    apart = budget.idle_whole_segments is not None or budget.idle_other_streams is not None
    idle = [
        (
            "idle_split",
            "Idle, in segments that hold live blocks" if apart else "Idle, kept by PyTorch",
            budget.idle_split,
        ),
        ("idle_other_streams", "Idle, but of other streams or the other pool", budget.idle_other_streams),
        ("idle_private_pools", "Idle, in private pools", budget.idle_private_pools),
        ("idle_whole_segments", "Idle, whole segments", budget.idle_whole_segments),
    ]
    rows += idle
    rows = [row for row in rows if row[2]]
    if budget.reserved is not None:
        rest = budget.reserved - sum(row[2] or 0 for row in rows)
        if rest:
            told = any(row[2] is not None for row in idle)
            label = "Reserved, not told apart" if told else "Idle, kept by PyTorch"
            rows.append(("idle_split" if rest > 0 else "unexplained", label, rest))
    return rows


def _notes(budget: Budget, need: int | None, asked: int | None) -> list[str]:
    notes = []
    if budget.shortage is not None and budget.shortage > 0:
        parts = []
        if need is not None:
            new = asked is not None and format_size(asked) != format_size(need)
            parts.append(
                f"the request of {format_size(asked or 0)} needs a new segment of {format_size(need)}"
                if new
                else f"the request needs {format_size(need)}"
            )
        if budget.free is not None and budget.limit_kind != "fraction":
            parts.append(f"free on the card {format_size(budget.free)}")
        elif need is not None and budget.limit is not None and budget.reserved is not None:
            room = budget.limit - budget.reserved
            parts += [f"left under the cap {format_size(room)}"] if need - room == budget.shortage and room else []
        if budget.largest_hole is not None:
            parts.append(f"largest usable hole {format_size(budget.largest_hole)}")
        detail = f": {', '.join(parts)}" if parts else ""
        notes.append(f"Short by {format_size(budget.shortage)}{detail}.")
    if budget.limit is not None and budget.limit_kind == "fraction":
        notes.append(f"This process is capped at {format_size(budget.limit)} (memory fraction).")
    elif budget.limit is not None and budget.limit != budget.device_total:
        notes.append(f"PyTorch could reserve {format_size(budget.limit)} at most beside what others held.")
    return notes
