"""Growth or plateau: what a printed series proves."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final

from oomctl.model.log import MemorySummary, Series

FEWEST: Final = 4
"""Points below which nothing is concluded."""
KEEPS_GROWING: Final = 1 / 3
"""The second half must still grow at this share of the first half's rate; a warm-up does not."""
LEAST_GROWTH: Final = 0.03
"""Total growth over the first value; less is noise of the allocator."""
RISING: Final = 0.7
"""Share of the changes that must point upwards."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A series, judged.

    Attributes:
        series: The series.
        grows: It keeps growing.
        settles: It grew and then stayed.
        per_step: Bytes per step over the whole.
        late_per_step: Bytes per step over the second half.
        total: Last less first value, bytes.
    """

    series: Series
    grows: bool
    settles: bool
    per_step: float
    late_per_step: float
    total: int


def judge(series: Series) -> Growth | None:
    """Judges one series; None where it is too short or counts a high-water mark, which can only rise.

    Args:
        series: Of allocated, reserved, used or host memory.
    """
    values, steps = series.values, series.steps
    if series.meaning in ("peak", "unknown") or len(values) < FEWEST:
        return None
    span = steps[-1] - steps[0]
    between = [i for i in range(1, len(steps) - 1) if steps[0] < steps[i] < steps[-1]]
    if span <= 0 or not between:
        return None
    middle = min(between, key=lambda i: abs(steps[i] - (steps[0] + steps[-1]) / 2))
    first = (values[middle] - values[0]) / (steps[middle] - steps[0])
    late = (values[-1] - values[middle]) / (steps[-1] - steps[middle])
    total = values[-1] - values[0]
    changes = [b - a for a, b in itertools.pairwise(values) if b != a]
    rising = sum(c > 0 for c in changes) / len(changes) if changes else 0.0
    grown = total > LEAST_GROWTH * max(values[0], 1)
    grows = grown and rising >= RISING and first > 0 and late >= KEEPS_GROWING * first and _fits(steps, values)
    settles = (
        total >= 0 and not grows and late < KEEPS_GROWING * max(first, 0)
        if first > 0
        else abs(total) <= (LEAST_GROWTH * max(values[0], 1))
    )
    return Growth(series, grows, settles, total / span, late, total)


def _fits(steps: tuple[float, ...], values: tuple[int, ...]) -> bool:
    """Whether a straight line explains most of it; a sawtooth or a burst is no leak."""
    n = len(steps)
    mean_x, mean_y = sum(steps) / n, sum(values) / n
    xx = sum((x - mean_x) ** 2 for x in steps)
    yy = sum((y - mean_y) ** 2 for y in values)
    xy = sum((x - mean_x) * (y - mean_y) for x, y in zip(steps, values, strict=True))
    return xx > 0 and yy > 0 and xy * xy / (xx * yy) >= 0.7


def strongest(series: tuple[Series, ...]) -> tuple[Growth | None, Growth | None]:
    """The series that grows most, and the longest that settles; each may be None."""
    judged = [g for g in (judge(s) for s in series) if g is not None]
    growing = [g for g in judged if g.grows]
    settled = [g for g in judged if g.settles]
    order = {"allocated": 0, "used": 1, "reserved": 2, "host": 3}
    grow = min(growing, key=lambda g: (order.get(g.series.meaning, 9), -g.total), default=None)
    settle = max(settled, key=lambda g: len(g.series.values), default=None)
    return grow, settle


def table_series(summaries: tuple[MemorySummary, ...]) -> tuple[Series, ...]:
    """Live memory over successive tables of the same device: several prints show a trend that one cannot.

    Args:
        summaries: Tables in order of appearance.
    """
    points: dict[tuple[int | None, int | None], list[tuple[int, int]]] = {}
    for table in summaries:
        cell = table.rows.get("Allocated memory", {}).get("all")
        if cell is not None and cell.cur is not None:
            points.setdefault((table.device, table.rank), []).append((table.line, cell.cur))
    return tuple(
        Series(
            "Allocated memory",
            "allocated",
            tuple(float(i) for i in range(len(rows))),
            tuple(value for _, value in rows),
            rows[0][0],
            rank=rank,
        )
        for (_, rank), rows in points.items()
        if len(rows) >= FEWEST
    )
