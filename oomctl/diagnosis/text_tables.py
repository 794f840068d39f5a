"""A memory_summary table (or memory_stats) alone, without the message that it belongs to."""

from __future__ import annotations

from oomctl.diagnosis.text_opinion import SNAPSHOT, Opinion, item, percent, size
from oomctl.diagnosis.text_picture import Table, tables
from oomctl.diagnosis.text_thresholds import BUILDING_UP
from oomctl.model.common import Skipped
from oomctl.model.evidence import Evidence
from oomctl.model.report import EvidenceItem

IDLE_AT_PEAK = 0.25
"""Share of reserved that was idle even when most was live, from which layout and not demand filled the card."""
GONE = 0.5
"""Share of the peak that is gone when the table is printed, from which the peak was a passing one."""
_MESSAGE = Skipped("the request and the card", "the text holds no failure message", "the whole error message")


def alone(evidence: Evidence) -> Opinion | None:
    """Concludes from the table that counts most OOMs, or else has most reserved."""
    rows = [table for _, _, table in tables(evidence)]
    if not rows:
        return None
    t = max(rows, key=lambda r: (r.ooms or 0, r.reserved_peak or 0, r.peak or 0))
    statements = _statements(t)
    if not t.ooms:
        if t.reserved is None or t.ooms is None:
            return Opinion(
                "uncertain",
                None,
                "low",
                "A table without its reserved row, and no failure beside it: one such print shows no cause",
                statements,
                limits=(
                    _MESSAGE,
                    Skipped("growth", "one table is one point in time", "a second table some steps later"),
                ),
            )
        idle = t.reserved - (t.cur or 0)
        again = f"; {t.retries} times the cache was flushed and the request then served" if t.retries else ""
        return Opinion(
            "no_oom",
            None,
            "medium",
            f"No allocation failed{again}: {size(t.cur)} are live, {size(idle)} of the {size(t.reserved)} reserved "
            f"are cache",
            statements,
        )
    if t.rounding is not None and t.active and t.rounding >= 0.15 * t.active:
        return Opinion(
            "fragmentation",
            "rounding",
            "medium",
            f"{size(t.rounding)} of the {size(t.active)} in use were never asked for: sizes are rounded up",
            statements,
            limits=(_MESSAGE,),
        )
    if t.reserved and t.peak is not None and t.cur is not None:
        unused = t.reserved - t.peak
        if unused >= IDLE_AT_PEAK * t.reserved:
            return Opinion(
                "fragmentation",
                None,
                "medium" if unused >= 0.4 * t.reserved else "low",
                f"{size(t.reserved)} are reserved although never more than {size(t.peak)} were live: "
                f"{size(unused)} could not be reused",
                statements,
                limits=(_MESSAGE,),
            )
        if t.cur <= GONE * t.peak:
            return Opinion(
                "transient_peak",
                None,
                "low",
                f"{size(t.peak)} were live at the peak and {size(t.cur)} are now: a passing peak, with the cache "
                f"made for it",
                statements,
                limits=(_MESSAGE,),
            )
        if t.turnover is not None and t.turnover <= BUILDING_UP:
            return Opinion(
                "capacity",
                None,
                "low",
                f"{size(t.peak)} were built up and almost nothing was freed before the failure",
                statements,
                limits=(_MESSAGE,),
            )
    if (t.ooms or 0) >= 3:
        return Opinion(
            "transient_peak",
            None,
            "low",
            f"The program ran out {t.ooms} times and went on: only some steps need more than there is",
            statements,
            limits=(_MESSAGE,),
        )
    return Opinion(
        "uncertain",
        None,
        "low",
        f"{t.ooms} allocation{'s' if t.ooms != 1 else ''} failed; the table alone does not show why",
        statements,
        limits=(_MESSAGE, Skipped("what holds the live memory", "a table has totals only", SNAPSHOT)),
    )


def _statements(t: Table) -> tuple[EvidenceItem, ...]:
    out = []
    if t.ooms is not None:
        out.append(
            item(
                f"{t.ooms} failed allocations, {t.retries or 0} flushes of the cache",
                ooms_count=t.ooms,
                retries_count=t.retries,
            )
        )
    if t.cur is not None and t.peak is not None:
        out.append(item(f"Live: {size(t.cur)} now, {size(t.peak)} at the peak", allocated=t.cur, peak=t.peak))
    if t.reserved:
        idle = t.reserved - (t.cur or 0)
        out.append(
            item(
                f"Reserved: {size(t.reserved)}, of which {size(idle)} ({percent(idle / t.reserved)}) are idle",
                reserved=t.reserved,
                idle=idle,
            )
        )
    if t.non_releasable is not None:
        out.append(
            item(
                f"{size(t.non_releasable)} of it lie in segments that still hold something",
                non_releasable=t.non_releasable,
            )
        )
    return tuple(out)
