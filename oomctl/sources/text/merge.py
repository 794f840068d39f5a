"""From every mention to the distinct failures: repeated and re-raised messages are one, ranks are told apart."""

from __future__ import annotations

import bisect
import dataclasses
import functools
import itertools
import operator
import re
from collections import defaultdict, deque
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
_figures: Final = operator.attrgetter(*FIGURES)
APART: Final = 5.0
"""Seconds between two log lines with the same figures that make them two failures."""
RECENT: Final = 64
"""Failures with which a message is compared when it is not the very same."""
_MEMORY_ERRORS: Final = ("OutOfMemory", "out of memory")
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
    # By the request alone, where figures may be cut; by all that tells mentions apart, however long ago.
    alike: dict[object, deque[RawEvent]] = defaultdict(lambda: deque(maxlen=RECENT))
    for raw in [r for r in raws if r.numbered and not r.weak]:
        asked, identity = raw.event.tried_to_allocate, _identity(raw)
        near = (*alike[asked], *alike[None]) if asked is not None else kept[-RECENT:]
        candidates = itertools.chain(alike[identity], near)
        same = next((k for k in candidates if _same_figures(k, raw) and not _separate(k, raw)), None)
        if same is None:
            kept.append(raw)
            alike[asked].append(raw)
            alike[identity].append(raw)
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
        trace = traces[id(raw)] or _after(raw, found, used)
        event = raw.event
        if trace is not None:
            used.add(id(trace))
            event = dataclasses.replace(event, traceback=trace.frames, code=trace.code)
        if raw.time is not None and raw.time > 86400 * 365:
            event = dataclasses.replace(event, time_us=int(raw.time * 1_000_000))
        events.append(event)
    found.tracebacks = [
        t for t in found.tracebacks if id(t) not in used and not any(n in t.closing for n in _MEMORY_ERRORS)
    ]
    progress = _Progress(found)
    lines = [*sorted(e.line for e in events), 1 << 62]
    following = (lines[bisect.bisect_right(lines, e.line)] for e in events)
    return [
        dataclasses.replace(e, recovered=_recovered(e, border, progress))
        for e, border in zip(events, following, strict=True)
    ]


def _identity(raw: RawEvent) -> tuple[object, ...]:
    """What two mentions of one failure share as a rule."""
    return (raw.tag, raw.host, raw.subject, raw.event.rank, *_figures(raw.event))


def _ranks_agree(one: OomEvent, other: OomEvent) -> bool:
    return one.rank is None or other.rank is None or one.rank == other.rank


def _same_figures(kept: RawEvent, raw: RawEvent) -> bool:
    """Whether every figure that both show agrees, and one shows at least two of the other's (or is cut short)."""
    one, other = kept.event, raw.event
    if not _ranks_agree(one, other) or one.backend != other.backend:
        return False
    left, right = _figures(one), _figures(other)
    shared = 0
    for a, b in zip(left, right, strict=True):
        if a is None or b is None:
            continue
        if a != b:
            return False
        shared += 1
    fewest = len(FIGURES) - max(left.count(None), right.count(None))
    return shared == fewest if fewest else one.wording == other.wording


def _separate(kept: RawEvent, raw: RawEvent) -> bool:
    """Whether two mentions with the same figures are two failures all the same."""
    if kept.tag and raw.tag and kept.tag != raw.tag:
        return True
    if kept.host and raw.host:
        return kept.event.wording == raw.event.wording and _error_name(kept.event.text) == _error_name(raw.event.text)
    if kept.subject and raw.subject and kept.subject != raw.subject:
        if "::" in kept.subject and "::" in raw.subject:
            return True
        masked = [re.sub(r"\d+", "#", s) for s in (kept.subject, raw.subject)]
        return masked[0] == masked[1]
    if kept.time is not None and raw.time is not None and kept.subject == raw.subject:
        return abs(raw.time - kept.time) >= APART
    return False


@functools.lru_cache(4 * RECENT)
def _error_name(text: str) -> str:
    """The first word of a message that names an error."""
    words = re.split(r"\W+", text[:200])
    return next((word for word in words if word.endswith("Error") and word != "Error"), "")


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


def _after(raw: RawEvent, found: Findings, used: set[int]) -> FoundTraceback | None:
    """A traceback right below a message (a debugger's order, or a report with the error on top).

    One that ends in another error, or that comes after the program said it goes on, is that of a launcher.
    """
    for trace in found.tracebacks:
        if id(trace) in used or trace.first < raw.end:
            continue
        if trace.first - raw.end <= 8 and (not raw.tag or not trace.tag or trace.tag == raw.tag):
            # Of a traceback that others follow, the closing is the error's class alone.
            named = trace.closing in ("", "RuntimeError") or any(word in trace.closing for word in _MEMORY_ERRORS)
            went_on = any(s.kind == "recovering" and raw.end <= s.line < trace.first for s in found.signs)
            return trace if named and not went_on else None
    return None


class _Progress:
    """The printed steps, so that thousands of failures can each be asked what came after them."""

    def __init__(self, found: Findings) -> None:
        self.recovering = sorted(s.line for s in found.signs if s.kind == "recovering")
        steps = (s for s in found.signs if s.kind == "progress" and s.count is not None)
        self._steps: dict[int | None, list[tuple[int, str, int]]] = defaultdict(list)
        for s in sorted(steps, key=lambda s: s.line):
            self._steps[s.rank].append((s.line, _shape(s.text), s.count or 0))
        # Of each rank and shape: the lines, and the highest count on each of them or later.
        self._ahead: dict[tuple[int | None, str], tuple[list[int], list[int]]] = {}
        for rank, rows in self._steps.items():
            alike: dict[str, list[tuple[int, int]]] = defaultdict(list)
            for line, shape, count in rows:
                alike[shape].append((line, count))
            for shape, points in alike.items():
                highest = list(itertools.accumulate((count for _, count in reversed(points)), max))[::-1]
                self._ahead[rank, shape] = [line for line, _ in points], highest

    def goes_on(self, rank: int | None, line: int) -> bool:
        """Whether the kind of line that was last printed before comes again with a higher count."""
        rows = self._steps.get(rank, [])
        at = bisect.bisect_left(rows, (line,))
        if not at:
            return False
        _, shape, count = rows[at - 1]
        lines, highest = self._ahead[rank, shape]
        after = bisect.bisect_right(lines, line)
        return after < len(lines) and highest[after] > count


def _recovered(event: OomEvent, border: int, progress: _Progress) -> bool:
    """Whether the text shows that the program went on: it says so, or later steps are printed.

    Args:
        event: The failure.
        border: Line of the next one.
        progress: What the text printed.
    """
    said = bisect.bisect_left(progress.recovering, event.line - 6)
    if said < len(progress.recovering) and progress.recovering[said] < min(border, event.line + 12):
        return True
    return progress.goes_on(event.rank, event.line)


def _shape(text: str) -> str:
    return re.sub(r"[\d.\u2580-\u259f ]+", "#", text)[:60]
