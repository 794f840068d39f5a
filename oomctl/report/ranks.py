"""A job of many ranks as text: what a terminal, a comment and a page show of it before the ranks' own reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from oomctl.model.ranks import Job, Outlier, RankRow
from oomctl.report.terminal_page import Page
from oomctl.report.texts import clean, percent, place, ratio, sentence, size
from oomctl.units import format_size

GREY: Final = "bright_black"
ROWS: Final = 12
MANY: Final = 400
WORDS: Final = {
    "first": "failed first", "followed": "failed later", "failed": "failed", "stopped": "was stopped",
    "outlier": "stands apart", "healthy": "ran", "unreadable": "not read",
}  # fmt: skip
"""Roles in words."""
SEVERITIES: Final = {
    "first": "error", "followed": "warning", "failed": "error", "stopped": "ok", "outlier": "warning", "healthy": "ok",
    "unreadable": "warning",
}  # fmt: skip
_FOLLOWERS: Final = 4
"""Ranks that failed later and stand before those that stand apart; the others come behind."""
_ORDER: Final = ("first", "failed", "followed", "outlier", "unreadable", "stopped", "healthy")


@dataclass(frozen=True, slots=True)
class RowView:
    """One rank as text.

    Attributes:
        name: The rank.
        role: One of `model.ranks.ROLES`.
        word: The role in words.
        when: "+1.3 s" after the first failure, the clock of the first one, or "".
        peak: Highest live bytes.
        reserved: Reserved at its moment.
        excess: Above the median, signed.
        ratio: peak over the highest of all.
        what: Verdict, or why there is none.
        stage: Its coordinates.
        host: Its host.
    """

    name: str
    role: str
    word: str
    when: str
    peak: str
    reserved: str
    excess: str
    ratio: float
    what: str
    stage: str
    host: str


def row_views(job: Job) -> tuple[RowView, ...]:
    """Every rank, in order of rank."""
    most = max((row.peak or 0 for row in job.rows), default=0)
    return tuple(
        RowView(
            clean(row.name, 80), row.role, _word(row), _when(row), size(row.peak),
            size(row.reserved), _signed(row.excess), ratio(row.peak, most), _what(row), clean(row.stage, 60),
            clean(row.host, 60),
        )
        for row in job.rows
    )  # fmt: skip


def _word(row: RankRow) -> str:
    """The role in words; a rank that nothing decided may have run or failed."""
    open_ = row.role == "healthy" and row.cls == "uncertain"
    return "not told" if open_ else WORDS.get(row.role, clean(row.role, 20))


def _what(row: RankRow) -> str:
    if row.role == "unreadable":
        return clean(row.headline, 200)
    return f"{clean(row.code, 12)} {clean(row.cls, 40).replace('_', ' ')}".strip()


def _when(row: RankRow) -> str:
    if row.lag_us is None:
        return ""
    return "first" if row.role == "first" else f"+{row.lag_us / 1e6:,.2f} s"


def _signed(value: int | None) -> str:
    return "" if value is None else ("+" if value > 0 else "") + format_size(value)


def chosen(job: Job, most: int, usual: int = 12) -> tuple[list[int], dict[str, int]]:
    """(rows to show, how many of each role are left out): failures and outliers before the usual ones.

    Args:
        job: The job.
        most: Rows at most.
        usual: Of these, ranks that only ran, for comparison.
    """
    order = sorted(range(len(job.rows)), key=lambda i: (_ORDER.index(_role(job.rows[i])), job.rows[i].lag_us or 0, i))
    followers = [i for i in order if job.rows[i].role == "followed"][_FOLLOWERS:]
    plain = [i for i in order if job.rows[i].role in ("stopped", "healthy")]
    late = {*followers, *plain}
    special = [i for i in order if i not in late] + followers
    kept = (special + plain[:usual])[:most]
    left = (special + plain)[len(kept) :]
    counts: dict[str, int] = {}
    for i in left:
        counts[_role(job.rows[i])] = counts.get(_role(job.rows[i]), 0) + 1
    return kept, counts


def _role(row: RankRow) -> str:
    return row.role if row.role in _ORDER else "healthy"


def left_words(counts: dict[str, int]) -> str:
    """What is not shown, in words: "498 more: 490 ran, 8 failed later"."""
    if not counts:
        return ""
    parts = ", ".join(f"{n:,} {WORDS[role]}" for role, n in counts.items())
    return f"+ {sum(counts.values()):,} more: {parts}"


def outlier_words(outlier: Outlier) -> str:
    """What sets a rank apart, in a sentence."""
    return (
        f"{clean(outlier.name, 80)} holds {size(outlier.bytes)} at its peak, the median rank {size(outlier.median)}; "
        f"its places hold {size(outlier.excess)} more than theirs"
    )


def spread_rows(job: Job) -> list[tuple[str, str, str, str]]:
    """(figure, lowest and whose, median, highest and whose)."""
    return [
        (clean(s.name, 80), f"{size(s.low)} ({clean(s.low_name, 60)})", size(s.median),
         f"{size(s.high)} ({clean(s.high_name, 60)})")
        for s in job.spreads
    ]  # fmt: skip


def stage_rows(job: Job) -> list[tuple[str, str, str, str, float, str]]:
    """(stage, ranks, median peak, its share of the largest stage's, ratio, highest and whose)."""
    return [
        (clean(s.name, 60), f"{s.ranks:,}", size(s.median), percent(s.share), ratio(s.share, 1.0),
         f"{size(s.high)} ({clean(s.high_name, 60)})")
        for s in job.stages
    ]  # fmt: skip


def missing_words(job: Job) -> str:
    """Ranks without files, in words."""
    if not job.missing:
        return ""
    shown = ", ".join(clean(run, 20) for run in job.missing[:20])
    return f"No file of rank {shown}" + (" ..." if len(job.missing) > 20 else "") + " was found."


def terminal(page: Page, job: Job, severity: str, code: str, cls: str, style: str, verbose: bool, whole: bool) -> None:
    """The job before the first rank's report.

    Args:
        page: Where to write.
        job: The job.
        severity: Of the first rank's verdict.
        code: Its code.
        cls: Its class.
        style: Style of the severity.
        verbose: Every rank.
        whole: The verdict on one line.
    """
    head = ((f"{severity}[{code}]", style), (f" {cls}: ", "bold"), clean(job.headline, 1000))
    page.add(*head) if whole else page.wrap(*head, rest=2)
    page.wrap((f"{job.ranks:,} ranks, {job.read:,} read, {job.failed:,} out of memory", GREY), first=2)
    if job.missing:
        page.wrap(missing_words(job), first=2)
    views = row_views(job)
    kept, counts = chosen(job, MANY if verbose else ROWS, MANY if verbose else 4)
    staged, hosted = any(v.stage for v in views), any(v.host for v in views)
    page.heading("The ranks", "failures first, then who stands apart")
    wide = page.columns >= 100
    heads = ["rank", "", "when", "peak live", "vs median", *(["reserved"] if wide else []),
             *(["stage"] if staged else []), "verdict"]  # fmt: skip
    table = [[(text, GREY) for text in heads]]
    for i in kept:
        v = views[i]
        name = f"{v.name} ({v.host})" if hosted and v.host and v.host not in v.name else v.name
        plain = [v.when, v.peak, v.excess, *([v.reserved] if wide else []), *([v.stage] if staged else []), v.what]
        named = [(name, "bold" if v.role == "first" else ""), (v.word, _STYLES[SEVERITIES.get(v.role, "ok")])]
        table.append(named + [(text, "") for text in plain])
    page.table(table, right=(2, 3, 4, 5) if wide else (2, 3, 4), cut=len(heads) - 1)
    if counts:
        page.add("  ", (left_words(counts) + ("" if verbose else " (-v)"), GREY))
    if len(views) > 2 and any(v.ratio for v in views):
        page.add("  peaks ", page.spark([v.ratio for v in views], page.columns - 8))
        page.add("        ", ("live memory at its peak, rank by rank", GREY))
    _apart(page, job.outliers[: MANY if verbose else 3], verbose)
    _spread(page, job)
    if job.limits:
        page.heading("What could not be told about the job")
        for limit in job.limits[: MANY if verbose else ROWS]:
            page.wrap(("- ", GREY), (clean(limit.what), "bold"), ": " + clean(limit.reason), first=2, rest=4)


_STYLES: Final = {"error": "bold red", "warning": "yellow", "ok": "green"}


def _apart(page: Page, outliers: Sequence[Outlier], verbose: bool) -> None:
    for outlier in outliers:
        page.heading(f"What sets {clean(outlier.name, 80)} apart")
        page.wrap(sentence(outlier_words(outlier)), first=2)
        rows = [[("more", GREY), ("it holds", GREY), ("median", GREY), ("where", GREY)]]
        for p in outlier.places[: 8 if verbose else 4]:
            where = " ".join(place(p.file, p.line, p.function)).strip()
            rows.append([(_signed(p.excess), ""), (size(p.bytes), ""), (size(p.median), ""), (where, "")])
        page.table(rows, right=(0, 1, 2), cut=3)


def _spread(page: Page, job: Job) -> None:
    if job.spreads:
        page.heading("Spread over the ranks")
        rows = [[("", ""), ("lowest", GREY), ("median", GREY), ("highest", GREY)]]
        rows += [[(text, "") for text in row] for row in spread_rows(job)]
        page.table(rows, right=(2,), cut=0)
    if job.stages:
        page.heading("By stage", "median of the ranks' peaks")
        table = [[("", ""), ("ranks", GREY), ("median", GREY), ("", GREY), ("", ""), ("highest", GREY)]]
        for name, ranks, middle, share, share_ratio, high in stage_rows(job):
            bar = page.bar(share_ratio, 16)
            table.append([(name, ""), (ranks, ""), (middle, ""), (share, GREY), (bar, "blue"), (high, "")])
        page.table(table, right=(1, 2, 3), cut=5)
