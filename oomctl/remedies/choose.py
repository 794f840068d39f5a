"""The remedies of a conclusion: replayed settings where they help, else the change of code or operation."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from oomctl.model.conclusion import Conclusion, Facts
from oomctl.model.report import Remedy, Report
from oomctl.remedies.base import Entry, placed
from oomctl.remedies.registry import ENTRIES
from oomctl.remedies.settings import from_replay, left_open, rounding_dropped, unproved

MOST_SETTINGS: Final = 3
MOST_ENTRIES: Final = 3

_MACHINERY: Final = re.compile(
    r"::|\(|^_?Py[A-Z_]|^_+(?:libc_|clone$|start$)|^pthread_|^fsdp_|^(?:un)?pack_hook$|^(?:pre|post)_(?:forward|backward)$"
)
"""Functions of C++, of the interpreter and of torch's wrappers: their names say nothing about what the program does."""

_ENTRY_POINTS: Final = frozenset({"main", "<module>", "run", "cli"})
_IN_FILE: Final = re.compile(r"[^?:][^:]*:\d+ ")
"""A label that names a file."""


def advise(conclusion: Conclusion) -> Report:
    """The report with its remedies, ranked.

    No setting is advised that replay refutes, none that is on already, and none for a leak, a peak or a full card.

    Args:
        conclusion: From the diagnosis, its report's `whatif` filled where the trace could be replayed.
    """
    report, facts = conclusion.report, conclusion.facts
    entries = [_remedy(e, report, facts) for e in _entries(report, facts)]
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
    names = (facts.operation if not _machinery(facts.operation, facts) else "", *_names(facts), *facts.hint)
    fitting = [e for e in ENTRIES if e.applies(verdict.cls, verdict.subtype, names, facts.phase)]
    given = report.timeline is not None or any(one.kind == "snapshot" for one in report.inputs)
    beside = ("record-a-snapshot" if given else "", "dump-again" if not given or report.timeline is not None else "")
    fitting = [e for e in fitting if e.slug not in beside]
    fitting.sort(key=lambda e: -e.weight)
    return fitting[:MOST_ENTRIES]


def _names(facts: Facts) -> list[str]:
    """Functions of the program and its libraries, and the name of the file to change, which often says as much."""
    names = [name for name in facts.functions if not _machinery(name, facts)]
    stem = (facts.site or "").rpartition(":")[0].rpartition(".")[0]
    return [*names, stem] if stem.isidentifier() else names


def _machinery(name: str, facts: Facts) -> bool:
    # In a pass over the model, "checkpoint" is torch.utils.checkpoint and saves nothing.
    return bool(_MACHINERY.search(name)) or (name == "checkpoint" and facts.phase in ("forward", "backward"))


def _place(entry: Entry, report: Report, facts: Facts) -> str | None:
    """The line that the advice is about: the one that holds the bytes, or the one whose name called for the advice."""
    if entry.kind == "operations" and entry.applicability != "edit_code":
        return None
    known = [c for c in report.culprits if c.file not in ("", "??")]
    site = facts.site
    if site is None or not _IN_FILE.match(site):
        return _label(known[0].file, known[0].line, known[0].function) if known else None
    named = report.request.stack_label if report.request is not None else None
    if site.partition(" ")[2] in _ENTRY_POINTS and named and _IN_FILE.match(named):
        site = named  # everything is called from there: who asked says more
    if report.verdict.cls == "leak" or entry.when.search(site.partition(" ")[2]):
        return site
    for culprit in known:
        for line in culprit.stack:
            if line.kind == "user" and entry.when.search(line.function):
                return _label(line.file, line.line, line.function)
    return site


def _label(file: str, line: int, function: str) -> str:
    name = file.replace("\\", "/").rpartition("/")[2]
    return f"{name}:{line} {function}"


def _remedy(entry: Entry, report: Report, facts: Facts) -> Remedy:
    site = _place(entry, report, facts)
    return Remedy(
        kind=entry.kind,
        title=placed(entry.title, site),
        alloc_conf=None,
        env=None,
        applicability=entry.applicability,
        why=entry.why,
        caveats=entry.caveats,
        location=site,
        example=entry.example,
        slug=entry.slug,
    )
