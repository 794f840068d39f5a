"""memory_summary tables row by row: what each row counts, and which numbers give cause for doubt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oomctl.model.log import MemorySummary, SummaryCell
from oomctl.model.report import TableNote
from oomctl.report.texts import clean, count, sentence
from oomctl.units import format_size

ROW_HELP: Final = {
    "Allocated memory": "Bytes that tensors hold, rounding included.",
    "Active memory": "Allocated, plus what is freed but awaits another stream.",
    "Requested memory": "What the program asked for; allocated less this is rounding.",
    "GPU reserved memory": "What PyTorch took from the driver; nvidia-smi counts it as used.",
    "Non-releasable memory": "Idle bytes beside live blocks in the same segment; a flush cannot return them.",
    "Allocations": "Blocks that tensors hold.",
    "Active allocs": "Those, plus blocks that await another stream.",
    "GPU reserved segments": "Pieces taken from the driver.",
    "Non-releasable allocs": "Idle blocks beside live ones.",
    "Oversize allocations": "Blocks of max_split_size or more.",
    "Oversize GPU segments": "Segments of max_split_size or more.",
}
_COUNTS: Final = frozenset({
    "Allocations", "Active allocs", "GPU reserved segments", "Non-releasable allocs", "Oversize allocations",
    "Oversize GPU segments",
})  # fmt: skip
COLUMNS: Final = ("now", "peak", "allocated in all", "freed in all")


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric and pool: four cells as text, what it is, a remark."""

    metric: str
    pool: str
    cells: tuple[str, str, str, str]
    help: str
    note: str
    doubt: bool


@dataclass(frozen=True, slots=True)
class TableView:
    """One table with its head line."""

    title: str
    facts: str
    rows: tuple[MetricRow, ...]


def build_tables(tables: tuple[MemorySummary, ...], notes: tuple[TableNote, ...]) -> tuple[TableView, ...]:
    """Tables as text.

    Args:
        tables: As parsed.
        notes: Remarks on their rows.
    """
    remarks: dict[tuple[int, str], list[TableNote]] = {}
    for note in notes:
        remarks.setdefault((note.table, note.row), []).append(note)
    return tuple(_table(table, index, remarks) for index, table in enumerate(tables))


def _table(table: MemorySummary, index: int, remarks: dict[tuple[int, str], list[TableNote]]) -> TableView:
    where = "memory_summary" if table.device is None else f"memory_summary of GPU {table.device}"
    if table.rank is not None:
        where += f", rank {table.rank}"
    facts = []
    if table.num_ooms is not None:
        facts.append(f"CUDA OOMs {table.num_ooms:,}")
    if table.num_alloc_retries is not None:
        facts.append(f"cudaMalloc retries {table.num_alloc_retries:,}")
    if table.truncated:
        facts.append("cut off: some rows or numbers are missing")
    rows = []
    for metric, pools in table.rows.items():
        of_row = remarks.get((index, metric), [])
        for pool, cell in pools.items():
            first = pool == next(iter(pools))
            rows.append(
                MetricRow(
                    clean(metric, 120),
                    {"all": "", "large": "large pool", "small": "small pool"}.get(pool, clean(pool, 60)),
                    _cells(cell, metric in _COUNTS),
                    ROW_HELP.get(metric, "") if first and not of_row else "",
                    " ".join(sentence(clean(note.text, 800)) for note in of_row) if first else "",
                    first and any(note.doubt for note in of_row),
                )
            )
    return TableView(where, ", ".join(facts), tuple(rows))


def _cells(cell: SummaryCell, counts: bool) -> tuple[str, str, str, str]:
    def text(value: int | None) -> str:
        return "?" if value is None else count(value) if counts else format_size(value)

    return text(cell.cur), text(cell.peak), text(cell.total_alloc), text(cell.total_freed)
