"""From every mention to the distinct failures: repeated and re-raised messages are one, ranks are told apart."""

from __future__ import annotations

import dataclasses
import re
from typing import Final

from oomctl.model.log import OomEvent
from oomctl.sources.text.base import Findings, FoundTraceback, RawEvent

FIGURES: Final = (
    "gpu",
    "tried_to_allocate",
    "total_capacity",
    "free",
    "allocated",
    "reserved",
    "reserved_unallocated",
    "cached_unallocated",
    "private_pools",
    "allowed",
    "this_process_in_use",
    "process_in_use",
    "process_pid",
    "other_allocations",
    "max_allowed",
)
APART: Final = 5.0
"""Seconds between two log lines with the same figures that make them two failures."""
RECENT: Final = 64
"""Failures with which a message that names no request is compared."""
NEAR: Final = 25
"""Lines between the end of a traceback and the message that it belongs to."""


def failures(found: Findings) -> list[OomEvent]:
    """Distinct failures in order of time, each with its traceback, and whether the program went on.

    Args:
        found: All that the readers found; tracebacks that are used are taken out of it.
    """
    raws = sorted(found.events, key=lambda raw: (raw.event.line, raw.part))
    traces: dict[int, FoundTraceback | None] = {id(raw): _before(raw, found.tracebacks) for raw in raws}
    kept: list[RawEvent] = []
    alike: dict[int | None, list[RawEvent]] = {}
    for raw in [r for r in raws if r.numbered and not r.weak]:
        asked = raw.event.tried_to_allocate
        candidates = [*alike.get(asked, ()), *alike.get(None, ())] if asked is not None else kept[-RECENT:]
        same = next((k for k in candidates if _same_figures(k, raw) and not _separate(k, raw)), None)
        if same is None:
            kept.append(raw)
            alike.setdefault(asked, []).append(raw)
        else:
            _join(same, raw, traces)
    for raw in [r for r in raws if not r.numbered and not r.weak]:
        same = next((k for k in kept if _same_failure(k, raw)), None)
        if same is None:
            kept.append(raw)
        else:
            _join(same, raw, traces)
    for raw in [r for r in raws if r.weak]:
        same = next((k for k in kept if _ranks_agree(k.event, raw.event)), None)
        if same is None:
            kept.append(raw)
        elif abs(same.event.line - raw.event.line) < NEAR:
            _join(same, raw, traces)
    kept.sort(key=lambda raw: (raw.event.line, raw.part))
    if all(raw.time is not None for raw in kept):
        kept.sort(key=lambda raw: raw.time or 0.0)
    events = []
    used = {id(trace) for trace in traces.values() if trace is not None}
    for raw in kept:
        trace = traces[id(raw)] or _after(raw, found.tracebacks, used)
        event = raw.event
        if trace is not None:
            used.add(id(trace))
            event = dataclasses.replace(event, traceback=trace.frames, code=trace.code)
        if raw.time is not None and raw.time > 86400 * 365:
            event = dataclasses.replace(event, time_us=int(raw.time * 1_000_000))
        events.append(event)
    names = ("OutOfMemory", "out of memory")
    found.tracebacks = [t for t in found.tracebacks if id(t) not in used and not any(n in t.closing for n in names)]
    return [dataclasses.replace(e, recovered=_recovered(e, events, found)) for e in events]


def _ranks_agree(one: OomEvent, other: OomEvent) -> bool:
    return one.rank is None or other.rank is None or one.rank == other.rank


def _same_figures(kept: RawEvent, raw: RawEvent) -> bool:
    """Whether every figure that both show agrees, and one shows at least two of the other's (or is cut short)."""
    one, other = kept.event, raw.event
    if not _ranks_agree(one, other) or one.backend != other.backend:
        return False
    pairs = [(getattr(one, key), getattr(other, key)) for key in FIGURES]
    shared = [(a, b) for a, b in pairs if a is not None and b is not None]
    if any(a != b for a, b in shared):
        return False
    fewest = min(sum(a is not None for a, _ in pairs), sum(b is not None for _, b in pairs))
    return len(shared) == fewest if fewest else one.wording == other.wording


def _separate(kept: RawEvent, raw: RawEvent) -> bool:
    """Whether two mentions with the same figures are two failures all the same."""
    if kept.tag and raw.tag and kept.tag != raw.tag:
        return True
    if kept.host and raw.host:
        names = [re.findall(r"\w+Error\b", one.event.text[:200])[:1] for one in (kept, raw)]
        return names[0] == names[1] and kept.event.wording == raw.event.wording
    if kept.subject and raw.subject and kept.subject != raw.subject:
        if "::" in kept.subject and "::" in raw.subject:
            return True
        masked = [re.sub(r"\d+", "#", s) for s in (kept.subject, raw.subject)]
        return masked[0] == masked[1]
    if kept.time is not None and raw.time is not None and kept.subject == raw.subject:
        return abs(raw.time - kept.time) >= APART
    return False


def _same_failure(kept: RawEvent, raw: RawEvent) -> bool:
    """Whether a mention without figures repeats a failure that is known."""
    if not _ranks_agree(kept.event, raw.event):
        return False
    if kept.event.wording == raw.event.wording:
        return True
    cut = {"async_message_cut", "nvml_assert"}
    return raw.event.wording in cut and abs(kept.event.line - raw.event.line) < NEAR


def _join(kept: RawEvent, raw: RawEvent, traces: dict[int, FoundTraceback | None]) -> None:
    """Adds what the second mention knows."""
    changes = {
        key: getattr(raw.event, key)
        for key in (*FIGURES, "rank")
        if getattr(kept.event, key) is None and getattr(raw.event, key) is not None
    }
    if len(raw.event.processes) > len(kept.event.processes):
        changes["processes"] = raw.event.processes
    if kept.event.wording == "message cut" and raw.numbered:
        changes["wording"] = raw.event.wording
    changes["torch"] = kept.event.torch & raw.event.torch
    kept.event = dataclasses.replace(kept.event, **changes)
    kept.end = max(kept.end, raw.end)
    kept.subject = kept.subject or raw.subject
    mine, others = traces[id(kept)], traces[id(raw)]
    if mine is None or (others is not None and len(others.frames) > len(mine.frames) and others.first < mine.first):
        traces[id(kept)] = others or mine


def _before(raw: RawEvent, tracebacks: list[FoundTraceback]) -> FoundTraceback | None:
    """The nearest traceback above the message, of the same worker."""
    best = None
    for trace in tracebacks:
        if trace.tag != raw.tag and trace.tag and raw.tag:
            continue
        reach = NEAR * 4 if trace.tag and trace.tag == raw.tag else NEAR
        if (
            trace.first <= raw.event.line
            and trace.last <= raw.end
            and raw.event.line - trace.last <= reach
            and (best is None or trace.last > best.last)
        ):
            best = trace
    return best


def _after(raw: RawEvent, tracebacks: list[FoundTraceback], used: set[int]) -> FoundTraceback | None:
    """A traceback right below a message (a debugger's order, or a report with the error on top)."""
    for trace in tracebacks:
        if id(trace) in used or trace.first < raw.end:
            continue
        if trace.first - raw.end <= 8 and (not raw.tag or not trace.tag or trace.tag == raw.tag):
            return trace
    return None


def _recovered(event: OomEvent, events: list[OomEvent], found: Findings) -> bool:
    """Whether the text shows that the program went on: it says so, or later steps are printed."""
    later = [e.line for e in events if e.line > event.line]
    border = min(later, default=1 << 62)
    if any(s.kind == "recovering" and event.line - 6 <= s.line < min(border, event.line + 12) for s in found.signs):
        return True
    steps = [s for s in found.signs if s.kind == "progress" and s.count is not None and s.rank == event.rank]
    before = [s for s in steps if s.line < event.line]
    after = [s for s in steps if s.line > event.line]
    if not before or not after:
        return False
    shape = _shape(before[-1].text)
    return any(_shape(s.text) == shape and (s.count or 0) > (before[-1].count or 0) for s in after)


def _shape(text: str) -> str:
    return re.sub(r"[\d.\u2580-\u259f ]+", "#", text)[:60]
