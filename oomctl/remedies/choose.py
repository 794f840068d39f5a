"""The remedies of a conclusion: replayed settings where they help, else the change of code or operation."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from oomctl.model.conclusion import Conclusion, Facts
from oomctl.model.report import Remedy, Report
from oomctl.remedies.base import Entry, placed
from oomctl.remedies.registry import ENTRIES
from oomctl.remedies.settings import from_replay, left_open, rounding_dropped, unproved

MOST_SETTINGS: Final = 3
MOST_ENTRIES: Final = 3


def advise(conclusion: Conclusion) -> Report:
    """The report with its remedies, ranked.

    No setting is advised that replay refutes, none that is on already, and none for a leak, a peak or a full card.

    Args:
        conclusion: From the diagnosis, its report's `whatif` filled where the trace could be replayed.
    """
    report, facts = conclusion.report, conclusion.facts
    entries = [_remedy(e, facts) for e in _entries(report, facts)]
    settings = _settings(report, facts) if report.verdict.cls == "fragmentation" else []
    code_first = report.verdict.subtype == "private_pools"
    return replace(report, remedies=tuple([*entries, *settings] if code_first else [*settings, *entries]))


def _settings(report: Report, facts: Facts) -> list[Remedy]:
    searched, subtype = report.whatif, report.verdict.subtype
    if subtype == "rounding":
        dropped = rounding_dropped(facts)
        proved = from_replay(searched, facts, subtype) if searched is not None else []
        same = next((r for r in proved if r.alloc_conf == dropped.alloc_conf), None)
        first = replace(dropped, replay=same.replay, why=f"{dropped.why} {same.why}") if same is not None else dropped
        return [first, *[r for r in proved if r is not same][: MOST_SETTINGS - 1]]
    if searched is None:
        return unproved(facts, "there is no trace to replay")
    if searched.identity.reason:
        return unproved(facts, searched.identity.reason)
    return (from_replay(searched, facts, subtype) or left_open(searched, facts, subtype))[:MOST_SETTINGS]


def _entries(report: Report, facts: Facts) -> list[Entry]:
    verdict = report.verdict
    names = (facts.operation, *facts.functions, *facts.hint)
    fitting = [e for e in ENTRIES if e.applies(verdict.cls, verdict.subtype, names, facts.phase)]
    if report.timeline is not None:
        fitting = [e for e in fitting if e.slug != "record-a-snapshot"]  # there is one
    fitting.sort(key=lambda e: -e.weight)
    return fitting[:MOST_ENTRIES]


def _remedy(entry: Entry, facts: Facts) -> Remedy:
    return Remedy(
        kind=entry.kind,
        title=placed(entry.title, facts.site),
        alloc_conf=None,
        env=None,
        applicability=entry.applicability,
        why=entry.why,
        caveats=entry.caveats,
        location=facts.site,
        example=entry.example,
        slug=entry.slug,
    )
