"""The remedies of a conclusion: replayed settings where they help, else the change of code or operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from oomctl.errors import OomctlError
from oomctl.model.common import Skipped
from oomctl.model.conclusion import Conclusion, Facts, ReplayInput
from oomctl.model.report import Remedy, Report, WhatIf
from oomctl.progress import Progress, silent
from oomctl.remedies.base import Entry
from oomctl.remedies.registry import ENTRIES
from oomctl.remedies.settings import from_replay, rounding_dropped, unproved

Replayer = Callable[[ReplayInput, Progress], WhatIf]
"""Runs the search over settings; `replay_search` unless a test says otherwise."""

MOST_SETTINGS = 3
MOST_ENTRIES = 3


def replay_search(given: ReplayInput, progress: Progress) -> WhatIf:
    """The usual set of settings, replayed on the trace."""
    from oomctl.allocator import what_if

    return what_if(
        given.snapshot,
        given.device,
        None,
        torch=given.torch.high or given.torch.low or (2, 14),
        limit=given.limit,
        limit_low=given.limit_low,
        limit_high=given.limit_high,
        until=given.until,
        device_total=given.device_total,
        progress=progress,
    )


def advise(
    conclusion: Conclusion, *, whatif: bool = True, progress: Progress = silent, replayer: Replayer = replay_search
) -> Report:
    """The report with its remedies, ranked.

    No setting is advised that replay refutes, none that is on already, and none for a leak, a peak or a full card.

    Args:
        conclusion: From the diagnosis.
        whatif: Replay the trace under other settings.
        progress: Called with what is being done.
        replayer: Runs the replays.
    """
    report, facts, given = conclusion.report, conclusion.facts, conclusion.replay
    cls, subtype = report.verdict.cls, report.verdict.subtype
    searched: WhatIf | None = None
    limits = report.limits
    if whatif and given is not None and cls != "no_oom":
        try:
            searched = replayer(given, progress)
        except OomctlError as error:
            limits = (*limits, Skipped("what other settings would have done", error.message, error.hint))
    entries = [_remedy(e, facts) for e in _entries(report, facts)]
    settings: list[Remedy] = []
    if cls == "fragmentation":
        settings = _settings(report, facts, given, searched)
    remedies = [*entries, *settings] if subtype == "private_pools" else [*settings, *entries]
    return replace(report, remedies=tuple(remedies), whatif=searched, limits=limits)


def _settings(report: Report, facts: Facts, given: ReplayInput | None, searched: WhatIf | None) -> list[Remedy]:
    if report.verdict.subtype == "rounding":
        dropped = rounding_dropped(facts, given)
        proved = from_replay(searched, facts, report.verdict) if searched is not None else []
        same = next((r for r in proved if r.alloc_conf == dropped.alloc_conf), None)
        first = replace(dropped, replay=same.replay, why=f"{dropped.why} {same.why}") if same is not None else dropped
        return [first, *[r for r in proved if r is not same][: MOST_SETTINGS - 1]]
    if searched is None:
        return unproved(facts, "there is no trace to replay")
    if searched.identity.exact < searched.identity.allocs:
        return unproved(facts, searched.identity.reason or "the model does not reproduce this recording exactly")
    return from_replay(searched, facts, report.verdict)[:MOST_SETTINGS]


def _entries(report: Report, facts: Facts) -> list[Entry]:
    verdict = report.verdict
    names = (facts.operation, *facts.functions, *facts.hint)
    fitting = [e for e in ENTRIES if e.applies(verdict.cls, verdict.subtype, names, facts.phase)]
    fitting.sort(key=lambda e: -e.weight)
    return fitting[:MOST_ENTRIES]


def _remedy(entry: Entry, facts: Facts) -> Remedy:
    site = facts.site or "the line below"
    return Remedy(
        kind=entry.kind,
        title=entry.title.format(site=site) if facts.site else entry.title.replace(" at {site}", "").format(site=site),
        alloc_conf=None,
        env=None,
        applicability=entry.applicability,
        why=entry.why,
        caveats=entry.caveats,
        location=facts.site,
        example=entry.example,
        slug=entry.slug,
    )
