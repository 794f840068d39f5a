"""Two runs concluded into one `Diff`; either may be a snapshot or a report that was made of one."""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Final

import numpy as np

from oomctl import __version__
from oomctl.analysis.compare import (
    Place,
    Places,
    State,
    difference,
    join_calls,
    last_event,
    match,
    places,
    state_at,
    step_marks,
)
from oomctl.analysis.curves import active_curve
from oomctl.analysis.frames import label
from oomctl.analysis.matching import Line, TextOf, match_lines
from oomctl.analysis.steps import StepGrid, find_steps
from oomctl.diagnosis.diff_reports import REST, report_places, report_side
from oomctl.errors import OomctlError
from oomctl.model.alloc_conf.parse import entries
from oomctl.model.common import InputFile, Skipped
from oomctl.model.diff import Curve, Diff, DiffRow, DiffSide, DiffSteps, Guard, SettingChange, StepPair
from oomctl.model.report import Device, Report
from oomctl.model.snapshot import DeviceSnapshot, Snapshot
from oomctl.model.stacks import Frame
from oomctl.units import format_size, parse_size

POINTS: Final = 600
STEPS: Final = 400
WAYS: Final = ("stack", "frame", "size")
MOMENTS: Final = ("peak", "oom", "end")
_MOMENTS: Final = {
    "peak": "the peak of allocated memory",
    "oom": "allocated memory at the failure",
    "end": "allocated memory at the end",
}
_NUMBER: Final = re.compile(r"(\d{1,18})$")
_VARIABLES: Final = {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"}
_PERCENT: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*%\s*")


@dataclass(frozen=True, slots=True)
class Run:
    """One of the two inputs.

    Attributes:
        inputs: The files.
        snapshot: The snapshot and its device, or None where a report stands for it.
        report: The report, or None.
        conf: Settings from elsewhere than the snapshot, or None.
        text_of: Source texts of its lines, or None.
    """

    inputs: tuple[InputFile, ...]
    snapshot: tuple[Snapshot, DeviceSnapshot] | None = None
    report: Report | None = None
    conf: str | None = None
    text_of: TextOf | None = None


def compare(
    before: Run,
    after: Run,
    *,
    at: str = "peak",
    by: str | None = None,
    tolerance: str | None = None,
    user_roots: tuple[str, ...] = (),
) -> Diff:
    """Compares two runs.

    Args:
        before: The first run.
        after: The second run.
        at: "peak" of allocated bytes, "oom" or "end".
        by: "stack", "frame" or "size"; None is stack, or size where neither has stacks.
        tolerance: What the allocated peak may grow by, such as "2%" or "200MiB"; None sets no gate.
        user_roots: Path prefixes that are the user's.

    Returns:
        Rows that sum to the change.

    Raises:
        OomctlError: A moment is not there, or an argument is none.
    """
    if at not in MOMENTS:
        raise OomctlError(f"no moment {at!r}", "one of " + ", ".join(MOMENTS))
    if by is not None and by not in WAYS:
        raise OomctlError(f"no rows by {by!r}", "one of " + ", ".join(WAYS))
    if before.report is not None or after.report is not None:
        found = _with_reports(before, after, at, by, user_roots)
    else:
        found = _snapshots(before, after, at, by, user_roots)
    found = replace(found, headline=_headline(found))
    return found if tolerance is None else replace(found, guard=gate(found, tolerance))


def _snapshots(before: Run, after: Run, at: str, by: str | None, user_roots: tuple[str, ...]) -> Diff:
    one, other = _state(before, at, "allocated"), _state(after, at, "allocated")
    stackless = not any(bool((s.blocks.stack[s.counting] >= 0).any()) for s in (one, other))
    by = by or ("size" if stackless else "stack")
    limits = [*_limits(one, "before"), *_limits(other, "after")]
    if stackless and by != "size":
        limits.append(Skipped("whose code it was", "neither run recorded stacks", "record with stacks='python'"))
    if one.at != other.at:
        limits.append(
            Skipped(
                "the same moment of both runs",
                f"one is at its {one.at}, the other at its {other.at}: one snapshot has no trace",
                "record events in both runs",
            )
        )
    rename = match(one, other, user_roots, (before.text_of, after.text_of)) if by != "size" else {}
    old, new = places(one, by, user_roots, rename), places(other, by, user_roots)
    if by == "stack":
        old = join_calls(old, new)
    rows, same_rows, same_bytes = difference(old, new)
    return Diff(
        oomctl_version=__version__,
        before=_side(before, one),
        after=_side(after, other),
        by=by,
        measure="allocated",
        change=other.allocated - one.allocated,
        headline="",
        rows=rows,
        same_rows=same_rows,
        same_bytes=same_bytes,
        settings=_settings(before, after, one, other),
        steps=_steps(one, other),
        limits=tuple(limits),
    )


def _state(run: Run, at: str, measure: str) -> State:
    assert run.snapshot is not None
    try:
        return state_at(*run.snapshot, at, measure)
    except OomctlError as error:
        name = run.inputs[0].path if run.inputs else "a snapshot"
        raise OomctlError(f"{name}: {error.message}", error.hint) from error


def _side(run: Run, state: State) -> DiffSide:
    snapshot = state.snapshot
    return DiffSide(
        inputs=run.inputs,
        device=Device(snapshot.backend, state.device.index),
        torch=snapshot.torch,
        alloc_conf=snapshot.settings.conf if snapshot.settings is not None else run.conf,
        at=state.at,
        event=state.event,
        allocated=state.allocated,
        blocks=len(state.counting),
        reserved=state.reserved_now,
        peak_allocated=state.peak_allocated,
        peak_reserved=state.peak_reserved,
        failed=state.failed,
        curve=_thinned(state),
    )


def _thinned(state: State) -> Curve | None:
    """The curve, with the highest and lowest point of each of equal stretches and the moment."""
    n = len(state.curve)
    if not n:
        return None
    keep = {0, n - 1, state.event, int(state.reserved.argmax())}
    edges = np.linspace(0, n, min(POINTS // 2, n) + 1, dtype=np.int64).tolist()
    for a, b in pairwise(edges):
        keep |= {a + int(state.curve[a:b].argmax()), a + int(state.curve[a:b].argmin())}
    points = np.array(sorted(keep), np.int64)
    return Curve(
        tuple(points.tolist()),
        tuple(state.curve[points].tolist()),
        tuple(state.reserved[points].tolist()),
        state.event,
    )


def _limits(state: State, which: str) -> list[Skipped]:
    told = []
    if state.device.trace is None:
        told.append(
            Skipped(
                f"the peak of the run {which}",
                "its snapshot has no trace, so that its end stands for it",
                "call torch.cuda.memory._record_memory_history() at the start and dump before disabling it",
            )
        )
    elif state.truncated:
        told.append(
            Skipped(
                f"peaks of the run {which} that came earlier than its recording",
                "the beginning of the trace is missing",
                "raise max_entries, or start recording before the model is built",
            )
        )
    if state.failed:
        told.append(
            Skipped(f"how far the run {which} would have gone", "it ended out of memory: its peak is what it could get")
        )
    if state.blocks.strays:
        told.append(Skipped(f"some blocks of the run {which}", f"{state.blocks.strays:,} events contradict each other"))
    return told


def _settings(before: Run, after: Run, one: State, other: State) -> tuple[SettingChange, ...]:
    found = _option_changes(_conf(before, one), _conf(after, other))
    recorded = [dict(s.snapshot.settings.values) if s.snapshot.settings is not None else {} for s in (one, other)]
    named = {change.name for change in found} | _VARIABLES
    if all(recorded):
        for key in sorted({*recorded[0], *recorded[1]} - named, key=str):
            a, b = recorded[0].get(key), recorded[1].get(key)
            if a != b:
                found.append(SettingChange(str(key), _word(a), _word(b)))
    return (*found, *_versions(one.snapshot, other.snapshot))


def _conf(run: Run, state: State) -> str | None:
    return state.snapshot.settings.conf if state.snapshot.settings is not None else run.conf


def _option_changes(before: str | None, after: str | None) -> list[SettingChange]:
    if before is None or after is None:
        known = before if before is not None else after
        return [] if known is None else [SettingChange("PYTORCH_ALLOC_CONF", before, after)]
    first, second = _options(before), _options(after)
    return [
        SettingChange(name, first.get(name), second.get(name))
        for name in sorted({*first, *second})
        if first.get(name) != second.get(name)
    ]


def _options(conf: str) -> dict[str, str]:
    pairs = (entry.partition(":") for entry in entries(conf))
    return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}


def _word(value: object) -> str | None:
    return None if value is None else str(value)[:200]


def _versions(before: Snapshot, after: Snapshot) -> list[SettingChange]:
    a, b = before.torch, after.torch
    apart = a.known and b.known and a != b and not _overlap(before, after)
    return [SettingChange("torch", str(a), str(b))] if apart else []


def _overlap(before: Snapshot, after: Snapshot) -> bool:
    low = max((v for v in (before.torch.low, after.torch.low) if v is not None), default=None)
    high = min((v for v in (before.torch.high, after.torch.high) if v is not None), default=None)
    return low is None or high is None or low <= high


def _steps(one: State, other: State) -> DiffSteps | None:
    grids = [_grid(state) for state in (one, other)]
    if not all(len(grid) for grid in grids):
        return None
    numbers = [_numbers(grid) for grid in grids]
    shared = [n for n in numbers[0] if n in numbers[1]]
    if not shared:
        return None
    (peaks_a, floors_a), (peaks_b, floors_b) = (
        step_marks(state, grid.starts) for state, grid in zip((one, other), grids, strict=True)
    )
    first = [numbers[0][n] for n in shared]
    second = [numbers[1][n] for n in shared]
    labels = grids[0].labels
    every = max(-(-len(shared) // STEPS), 1)
    pairs = tuple(
        StepPair(
            labels[i] if labels else f"step {n}",
            int(peaks_a[i]), int(peaks_b[j]), int(floors_a[i]), int(floors_b[j]),
        )
        for n, i, j in list(zip(shared, first, second, strict=True))[::every]
    )  # fmt: skip
    return DiffSteps(
        name=grids[0].name or "the period of the allocations",
        pairs=pairs,
        total_before=len(grids[0]),
        total_after=len(grids[1]),
        paired=len(shared),
        peak_change=round(float(np.median(peaks_b[second] - peaks_a[first]))),
        floor_growth_before=_growth(floors_a),
        floor_growth_after=_growth(floors_b),
    )


def _grid(state: State) -> StepGrid:
    return find_steps(state.snapshot, state.device, active_curve(state.blocks), last_event(state))


def _numbers(grid: StepGrid) -> dict[int, int]:
    """Number of a step, as its mark tells it or else by counting -> its row."""
    told = [_NUMBER.search(name) for name in grid.labels]
    if told and all(told):
        return {int(found[1]): row for row, found in enumerate(told) if found is not None}
    return {row: row for row in range(len(grid))}


def _growth(floors: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
    return round(float(np.median(np.diff(floors)))) if len(floors) > 1 else 0


def _with_reports(before: Run, after: Run, at: str, by: str | None, user_roots: tuple[str, ...]) -> Diff:
    """At least one side is a report: by frame, and only for the places that each report lists."""
    if by not in (None, "frame"):
        raise OomctlError(f"a saved report cannot be compared by {by}", "it keeps places only: --by frame")
    sides: list[DiffSide] = []
    held: list[Places] = []
    states: list[State] = []
    limits: list[Skipped] = []
    for run, which in ((before, "before"), (after, "after")):
        if run.report is not None:
            sides.append(report_side(run.report, run.inputs, at))
            found, told = report_places(run.report, at, which)
            limits += told
        else:
            state = _state(run, at, "active")
            states.append(state)
            sides.append(_side(run, state))
            found = places(state, "frame", user_roots)
            limits += _limits(state, which)
        held.append(found)
    old, new = held
    if before.report is not None or after.report is not None:
        old = _renamed(old, new)
    listed = [set(p) for p, run in zip((old, new), (before, after), strict=True) if run.report is not None]
    common = set.intersection(*listed) if len(listed) == 2 else listed[0]
    old, new = _folded(old, common), _folded(new, common)
    rows, same_rows, same_bytes = difference(old, new)
    changes = _option_changes(sides[0].alloc_conf, sides[1].alloc_conf)
    return Diff(
        oomctl_version=__version__,
        before=sides[0],
        after=sides[1],
        by="frame",
        measure="active",
        change=sides[1].allocated - sides[0].allocated,
        headline="",
        rows=rows,
        same_rows=same_rows,
        same_bytes=same_bytes,
        settings=tuple(changes),
        limits=(
            *limits,
            Skipped(
                "changes of places that a report does not list, and of callers",
                "a report keeps the largest places; the others are one row",
                "compare the snapshots themselves",
            ),
        ),
    )


def _renamed(old: Places, new: Places) -> Places:
    """BEFORE's places under the names that AFTER has for them."""

    def known(found: Places) -> dict[Frame, Line]:
        return {key[0]: Line(key[0]) for key in found if isinstance(key, tuple) and key and isinstance(key[0], Frame)}

    pairs = match_lines(known(old), known(new))
    renamed: Places = {}
    for key, place in old.items():
        first = key[0] if isinstance(key, tuple) and key else None
        name: Hashable = (pairs[first],) if isinstance(first, Frame) and first in pairs else key
        renamed[name] = place
    return renamed


def _folded(found: Places, common: set[Hashable]) -> Places:
    kept = {key: place for key, place in found.items() if key in common and key != REST}
    rest = [place for key, place in found.items() if key not in kept]
    if rest:
        counts = [place.blocks for place in rest]
        total = sum(n for n in counts if n is not None) if None not in counts else None
        kept[REST] = Place(sum(place.bytes for place in rest), total, name="(everything else)")
    return kept


def gate(found: Diff, tolerance: str) -> Guard:
    """Whether the allocated peak grew by more than it may.

    Args:
        found: The comparison.
        tolerance: "2%" of the peak before, or bytes such as "200MiB"; "0" allows nothing.

    Raises:
        OomctlError: The tolerance is none.
    """
    share = _PERCENT.fullmatch(tolerance)
    try:
        if share is not None:
            allowed = int(Fraction(share[1]) * found.before.peak_allocated / 100)
        else:
            allowed = parse_size(tolerance)
    except ValueError:
        raise OomctlError(f"--fail-if-grown: no tolerance {tolerance!r}", "write it as 2% or 200MiB") from None
    grown = found.after.peak_allocated - found.before.peak_allocated
    limit = f"{format_size(allowed)} are allowed ({tolerance.strip()})"
    if grown > allowed:
        return Guard(tolerance, allowed, grown, True, f"the allocated peak grew by {format_size(grown)}; {limit}")
    if found.after.failed and not found.before.failed:
        return Guard(
            tolerance, allowed, grown, True, "the run after ran out of memory, so that its peak is not what it needs"
        )
    word = f"grew by {format_size(grown)}" if grown > 0 else "did not grow"
    return Guard(tolerance, allowed, grown, False, f"the allocated peak {word}; {limit}")


def _headline(found: Diff) -> str:
    old, new = found.before.allocated, found.after.allocated
    what = _MOMENTS[found.after.at]
    if not found.rows:
        return f"no change: {what} is {format_size(new)} in both runs"
    if not found.change:
        return f"{what} is {format_size(new)} in both runs, held by other places"
    word = "grew" if found.change > 0 else "shrank"
    share = f" ({found.change / old:+.1%})" if old else ""
    text = f"{what} {word} by {format_size(abs(found.change))}{share}, from {format_size(old)} to {format_size(new)}"
    first = next((row for row in found.rows if (row.change > 0) == (found.change > 0)), None)
    if first is None:
        return text
    lead = "most of it" if 2 * abs(first.change) > abs(found.change) else "first"
    return f"{text}; {lead} {_part(first)}"


def _part(row: DiffRow) -> str:
    where = label(Frame(row.file, row.line, row.function)) if row.file else row.function
    return f"{row.status} at {where}, {'+' if row.change > 0 else ''}{format_size(row.change)}"
