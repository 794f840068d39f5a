"""What a saved report tells for a comparison: the live bytes of the places that it lists, at its peak or moment."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Final

from oomctl.analysis.compare import Place, Places
from oomctl.errors import OomctlError
from oomctl.model.common import InputFile, Skipped
from oomctl.model.diff import Curve, DiffSide
from oomctl.model.report import Report, Timeline
from oomctl.model.stacks import Frame

REST: Final[Hashable] = ("rest",)
"""Key of everything that a report does not list."""

_LABEL: Final = re.compile(r"(.*):(\d+) (.*)")
_FAILED: Final = frozenset({"fragmentation", "leak", "transient_peak", "capacity", "external"})


def report_side(report: Report, inputs: tuple[InputFile, ...], at: str) -> DiffSide:
    """Figures of a report at a moment.

    Raises:
        OomctlError: It holds no figures of memory, or the failure is asked of a run without one.
    """
    line, budget = report.timeline, report.budget
    reserved: int | None
    peak_reserved: int | None
    failed = report.verdict.cls in _FAILED
    if at == "oom" and not failed:
        raise OomctlError(f"{_name(inputs)}: nothing failed in this run", "ask for --at peak")
    if line is not None and line.active:
        i = _index(line, at)
        allocated, reserved, event = line.active[i], line.reserved[i], line.event[i]
        curve = Curve(line.event, line.active, line.reserved, event)
        peak, peak_reserved = max(line.active), max(line.reserved)
    else:
        live = None if budget is None else budget.active if budget.active is not None else budget.allocated
        if live is None or budget is None:
            raise OomctlError(f"{_name(inputs)}: the report says nothing about live memory", "compare the snapshots")
        allocated, reserved, event, curve = live, budget.reserved, -1, None
        peak, peak_reserved = live, budget.reserved
    return DiffSide(
        inputs=inputs,
        device=report.device,
        torch=report.torch,
        alloc_conf=report.alloc_conf,
        at=at if line is not None else "oom" if failed else "end",
        event=event,
        allocated=allocated,
        blocks=None,
        reserved=reserved,
        peak_allocated=peak,
        peak_reserved=peak_reserved,
        failed=failed,
        source="report",
        curve=curve,
    )


def report_places(report: Report, at: str, which: str) -> tuple[Places, list[Skipped]]:
    """Live bytes of the places that a report lists; they sum to `DiffSide.allocated`.

    Args:
        report: The report.
        at: peak, oom or end.
        which: "before" or "after", for the limits.
    """
    told: list[Skipped] = []
    line = report.timeline
    found: Places = {}
    frames = {c.rank: Frame(c.file, c.line, c.function) for c in report.culprits}
    stacks = {c.rank: c.stack for c in report.culprits}
    if line is not None and line.active:
        i = _index(line, at)
        listed = 0
        for band in line.bands:
            frame = frames.get(band.rank) or _frame(band.label)
            if band.rank <= 0 or frame is None:
                continue
            key = (frame,)
            place = found.setdefault(key, Place(blocks=None))
            place.bytes += band.values[i]
            place.frames, place.stack = key, stacks.get(band.rank, ())
            listed += band.values[i]
        found[REST] = Place(line.active[i] - listed, None, name="(everything else)")
        return found, told
    side = report_side(report, report.inputs, at)
    rest = side.allocated
    for culprit in report.culprits:
        if culprit.role == "held" and not culprit.caller and culprit.bytes <= rest:
            key = (frames[culprit.rank],)
            found[key] = Place(culprit.bytes, culprit.blocks, key, culprit.stack)
            rest -= culprit.bytes
    found[REST] = Place(rest, None, name="(everything else)")
    told.append(Skipped(f"the peak of the run {which}", "its report has no timeline: its one moment stands for it"))
    return found, told


def _index(line: Timeline, at: str) -> int:
    if at == "peak":
        return max(range(len(line.active)), key=line.active.__getitem__)
    if at == "end":
        return len(line.active) - 1
    return min(range(len(line.event)), key=lambda i: abs(line.event[i] - line.moment))


def _frame(label: str) -> Frame | None:
    found = _LABEL.fullmatch(label)
    return Frame(found[1], int(found[2][:9]), found[3]) if found else None


def _name(inputs: tuple[InputFile, ...]) -> str:
    return inputs[0].path if inputs else "a report"
