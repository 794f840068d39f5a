"""A job of many ranks as a part of the page: the strip of peaks, the table of ranks, what sets outliers apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from oomctl.model.ranks import Job, RankRow
from oomctl.model.report import Report
from oomctl.report import ranks
from oomctl.report.texts import capital, clean, place, sentence, size

ROWS: Final = 96
STRIP: Final = 512
"""Bars of the strip of peaks; ranks beyond share one, the highest counts."""
NAMED: Final = 12
"""Bars that have their names below them at most."""
_LETTERS: Final = 110
"""Letters that fit below the strip."""
_BESIDE: Final = re.compile(r"(?![/\\])[^:\\?#\x00-\x1f]{1,400}\.html")
"""A path from the page's own folder: no scheme, no host."""
LINKS: Final = 1024
"""Ranks whose own pages are linked in the list of all."""
_KEYS: Final = {"first": "o2", "followed": "o2", "failed": "o2", "outlier": "o5"}


@dataclass(frozen=True, slots=True)
class _Row:
    """A rank, and where its report is."""

    view: ranks.RowView
    link: str


@dataclass(frozen=True, slots=True)
class _Outlier:
    """What sets a rank apart."""

    name: str
    said: str
    places: tuple[tuple[str, str, str, str, str], ...]


@dataclass(frozen=True, slots=True)
class JobView:
    """What the template shows of a job."""

    severity: str
    headline: str
    ranks: str
    read: str
    failed: str
    missing: str
    strip: tuple[tuple[float, float, float, str, str], ...]
    strip_names: tuple[tuple[float, str], ...]
    links: tuple[tuple[str, str], ...]
    rows: tuple[_Row, ...]
    left: str
    staged: bool
    outliers: tuple[_Outlier, ...]
    spreads: list[Any]
    stages: list[Any]
    limits: tuple[tuple[str, str], ...]


def job_view(report: Report, severity: str, every: Job | None = None, rows: int = ROWS) -> JobView | None:
    """The job of a report for the template; None where it is about one rank.

    Args:
        report: The report, its other ranks in `others`.
        severity: Of its verdict.
        every: The job with all its rows where the report's have been thinned.
        rows: Ranks in the table at most.
    """
    job = every or report.job
    if job is None:
        return None
    views = ranks.row_views(job)
    pages = ((view.name, _page(row)) for view, row in zip(views, job.rows, strict=True))
    kept, counts = ranks.chosen(job, rows)
    sections = {
        one.device.rank: f"#d{i}" for i, one in enumerate((report, *report.others)) if one.device.rank is not None
    }
    return JobView(
        severity=severity,
        headline=sentence(clean(job.headline, 1000)),
        ranks=f"{job.ranks:,}",
        read=f"{job.read:,}",
        failed=f"{job.failed:,}",
        missing=ranks.missing_words(job),
        strip=_strip(views),
        strip_names=_strip_names(views),
        links=tuple(link for link in pages if link[1])[:LINKS],
        rows=tuple(_Row(views[i], _link(job, i, sections)) for i in kept),
        left=ranks.left_words(counts),
        staged=any(view.stage for view in views),
        outliers=tuple(
            _Outlier(
                clean(o.name, 80),
                capital(ranks.outlier_words(o)),
                tuple(
                    (*place(p.file, p.line, p.function), "+" + size(p.excess), size(p.bytes), size(p.median))
                    for p in o.places
                ),
            )
            for o in job.outliers[:6]
        ),
        spreads=ranks.spread_rows(job),
        stages=ranks.stage_rows(job),
        limits=tuple((clean(x.what), clean(x.reason)) for x in job.limits[:24]),
    )


def _strip_names(views: tuple[ranks.RowView, ...]) -> tuple[tuple[float, str], ...]:
    """(middle in percent, name) below the bars where there is room for names."""
    if len(views) > NAMED or max(len(view.name) for view in views) * len(views) > _LETTERS:
        return ()
    return tuple((round((k + 0.45) * 100 / len(views), 2), view.name) for k, view in enumerate(views))


def _link(job: Job, i: int, sections: dict[int, str]) -> str:
    row = job.rows[i]
    return _page(row) or (sections.get(row.rank, "") if row.rank is not None else "")


def _page(row: RankRow) -> str:
    """The rank's page beside this one; a saved report may name any address, and only files are linked to."""
    return row.page if _BESIDE.fullmatch(row.page or "") else ""


def _strip(views: tuple[ranks.RowView, ...]) -> tuple[tuple[float, float, float, str, str], ...]:
    """(x, width, height, colour, text) of each bar, in percent."""
    count = min(len(views), STRIP)
    if count < 3 or not any(view.ratio for view in views):
        return ()
    bars = []
    for k in range(count):
        span = range(k * len(views) // count, (k + 1) * len(views) // count)
        top = max(span, key=lambda i: (views[i].role in _KEYS, views[i].ratio))
        wide = 100 / count
        text = f"{views[top].name}: {views[top].peak}, {views[top].word}"
        bars.append((round(k * wide, 3), round(wide * 0.9, 3), round(views[top].ratio * 96, 2),
                     _KEYS.get(views[top].role, "o1"), text))  # fmt: skip
    return tuple(bars)
