"""`torch.cuda.memory_summary()` tables: whole, abbreviated, cut at either end, wrapped, several in one log.

The layout is torch/cuda/memory.py's (1.4 to 2.14): eleven metrics, each with a total row and, unless abbreviated, one
row a pool; the unit of a column is chosen from the total row. Cells are told apart by "|", never by position.
"""

from __future__ import annotations

import re
from typing import Final

from oomctl.model.log import MemorySummary, SummaryCell
from oomctl.sources.text.base import Findings, Passage
from oomctl.sources.text.normalise import Line
from oomctl.sources.text.squeeze import Squeezed
from oomctl.units import read_size

LABELS: Final = {
    "Allocatedmemory": "Allocated memory",
    "Activememory": "Active memory",
    "Requestedmemory": "Requested memory",
    "GPUreservedmemory": "GPU reserved memory",
    "Non-releasablememory": "Non-releasable memory",
    "Allocations": "Allocations",
    "Activeallocs": "Active allocs",
    "GPUreservedsegments": "GPU reserved segments",
    "Non-releasableallocs": "Non-releasable allocs",
    "Oversizeallocations": "Oversize allocations",
    "OversizeGPUsegments": "Oversize GPU segments",
}
BYTE_ROWS: Final = tuple(label for label in LABELS.values() if label.endswith("memory"))
_POOLS: Final = {"fromlargepool": "large", "fromsmallpool": "small"}
_CELL: Final = r"(-?\d+)(B|[KMGTPE]i?B|[KM])?"
_TOKEN: Final = re.compile(
    r"PyTorchCUDAmemorysummary,deviceID(?P<device>\d{1,5})|CUDAOOMs:(?P<ooms>\d{1,18})|cudaMallocretries:(?P<retries>\d{1,18})"
    r"|(?<![A-Za-z])(?P<label>" + "|".join((*LABELS, *_POOLS)) + r")\|(?P<cells>(?:[-\dBKMGTPEi]{0,24}\|?){0,4})"
)
_CELLS: Final = re.compile(_CELL + r"(?P<bar>\|)?")
COUNT_FACTORS: Final = {None: 1, "": 1, "K": 1000, "M": 1000**2}


class Summaries:
    """Reads tables."""

    slug = "memory_summary"

    def read(self, passage: Passage, found: Findings) -> None:
        """Adds one `MemorySummary` a table."""
        covered: set[int] = set()
        for squeezed in passage.squeezed:
            if "|" not in squeezed.text and "OOMs" not in squeezed.text:
                continue
            for table, lines in _tables(squeezed, found):
                if not passage.stretch.accepts(table.line) or id(lines[0]) in covered:
                    continue
                covered.update(id(line) for line in lines if line is lines[0] or not line.tag)
                if found.room("tables", len(found.tables)):
                    found.tables.append(table)


class _Draft:
    def __init__(self, line: int, rank: int | None, first: int) -> None:
        self.line, self.rank, self.first, self.end = line, rank, first, first
        self.device: int | None = None
        self.ooms: int | None = None
        self.retries: int | None = None
        self.rows: dict[str, dict[str, SummaryCell]] = {}
        self.label = ""
        self.units: list[str | None] = []
        self.cut = False
        self.style = ""


def _tables(squeezed: Squeezed, found: Findings) -> list[tuple[MemorySummary, list[Line]]]:
    drafts: list[_Draft] = []
    draft: _Draft | None = None
    end = 0
    for token in _TOKEN.finditer(squeezed.text):
        line = squeezed.line(token.start())
        rank = line.rank if line.rank is not None else found.rank
        far = draft is not None and squeezed.index(token.start()) - squeezed.index(end) > 24
        label = token["label"]
        starts = (
            draft is None
            or token["device"] is not None
            or (token["ooms"] is not None and (draft.ooms is not None or bool(draft.rows)))
            or (token["retries"] is not None and (draft.retries is not None or bool(draft.rows)))
            or (label in LABELS and LABELS[label] in draft.rows)
            or (far and label in LABELS)
        )
        if starts:
            if label in _POOLS or (draft is None and label is not None and "|" not in token["cells"]):
                continue
            draft = _Draft(line.no, rank, squeezed.index(token.start()))
            drafts.append(draft)
        assert draft is not None
        end = token.end()
        draft.end = squeezed.index(end - 1)
        if token["device"] is not None:
            draft.device = int(token["device"])
        elif token["ooms"] is not None:
            draft.ooms = int(token["ooms"])
        elif token["retries"] is not None:
            draft.retries = int(token["retries"])
        else:
            _row(draft, label, token["cells"], token.end() == len(squeezed.text))
    return [
        (_finish(d, found.source), squeezed.lines[d.first : d.end + 1])
        for d in drafts
        if d.rows or d.ooms is not None or d.retries is not None
    ]


def _row(draft: _Draft, label: str, cells: str, at_end: bool) -> None:
    pool = _POOLS.get(label)
    if pool is None:
        draft.label = LABELS[label]
        pool = "all"
    elif not draft.label or draft.label.startswith("Oversize"):
        return
    values: list[int | None] = []
    position = 0
    for _ in range(4):
        match = _CELLS.match(cells, position)
        if match is None:
            break
        unit = match[2]
        whole = match["bar"] is not None or (unit is not None and unit.endswith("B") and len(values) == 3)
        values.append(_value(match[1], unit, draft.label in BYTE_ROWS) if whole else None)
        if unit and unit.endswith("iB"):
            draft.style = "KiB"
        elif unit and unit.endswith("B") and len(unit) == 2:
            draft.style = draft.style or "KB"
        position = match.end()
        if match["bar"] is None:
            break
    values += [None] * (4 - len(values))
    if None in values:
        draft.cut = True
        if all(value is None for value in values):
            return
    draft.rows.setdefault(draft.label, {})[pool] = SummaryCell(*values)


def _value(number: str, unit: str | None, is_bytes: bool) -> int | None:
    if is_bytes:
        if unit is None or not unit.endswith("B"):
            return None
        size = read_size(number.lstrip("-") + unit)
        return -size if size is not None and number.startswith("-") else size
    if unit not in COUNT_FACTORS:
        return None
    return int(number) * COUNT_FACTORS[unit]


def _finish(draft: _Draft, source: int) -> MemorySummary:
    expected = {"Allocated memory", "Active memory", "GPU reserved memory", "Non-releasable memory", "Allocations"}
    missing = not expected <= set(draft.rows) or draft.device is None or draft.ooms is None
    return MemorySummary(
        device=draft.device,
        num_ooms=draft.ooms,
        num_alloc_retries=draft.retries,
        truncated=draft.cut or missing or "GPU reserved segments" not in draft.rows,
        rows=draft.rows,
        unit_style=draft.style or "KiB",
        line=draft.line,
        source=source,
        rank=draft.rank,
    )
