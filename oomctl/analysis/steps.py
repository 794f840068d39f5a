"""Steps of the program: from annotations, else from the period of the sequence of allocations."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.phases import FORWARD, phases
from oomctl.model.coding import coded, grouped
from oomctl.model.common import without_number
from oomctl.model.snapshot import Action, Annotation, DeviceSnapshot, Snapshot
from oomctl.model.stacks import Frame

FEWEST: Final = 3
"""Fewer marks than this are no steps."""

LONGER: Final = 1.5
"""A step with this many times the usual number of allocations runs a loop of its own."""

_REGULAR: Final = 0.5
"""Largest coefficient of variation of the gaps between marks of one signature."""


@dataclass(frozen=True, slots=True, eq=False)
class StepGrid:
    """Boundaries between steps up to the moment.

    Attributes:
        source: "annotation", "period" or "none".
        name: What marks them, for example "Optimizer.step#AdamW.step"; "" for a period.
        starts: int64[k], trace index of the first event of each step, ascending; the last step is the one under way
            at the moment.
        labels: Names of the steps, () when they have none.
    """

    source: str
    name: str
    starts: NDArray[np.int64]
    labels: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.starts)


NO_STEPS: Final = StepGrid("none", "", np.zeros(0, np.int64))


def find_steps(snapshot: Snapshot, device: DeviceSnapshot, active: NDArray[np.int64], event: int) -> StepGrid:
    """Finds the steps before an event.

    Args:
        snapshot: For its annotations.
        device: One device with a trace.
        active: int64[events], live bytes.
        event: The moment; later events are not looked at.
    """
    if device.trace is None or event < 0:
        return NO_STEPS
    marked = _from_annotations(snapshot.annotations, device, event)
    if marked is not None:
        return marked
    found = _from_period(device, active, 0, event)
    if len(found):
        used = _stacks_between(device, int(found.starts[0]), int(found.starts[-1]))
        if _within_module(snapshot, used):  # the layers of one pass, not steps
            return NO_STEPS
    return found


def find_inner_loop(
    snapshot: Snapshot, device: DeviceSnapshot, active: NDArray[np.int64], grid: StepGrid, event: int
) -> StepGrid:
    """A loop within the step under way, or at the end of a trace without steps: an evaluation, a generation.

    The layers of one forward pass recur like steps too, and hold more with each. What tells them apart: a loop makes
    whole forward passes, so it allocates far more often than any step before it did; without steps to compare with, its
    allocations have no module call in common, yet each round runs one.

    Args:
        snapshot: For its stacks.
        device: One device with a trace.
        active: int64[events], live bytes.
        grid: The steps found before.
        event: The moment.
    """
    trace = device.trace
    if trace is None or event < 0:
        return NO_STEPS
    allocs = np.flatnonzero(trace.action[: event + 1] == Action.ALLOC)
    if len(grid) >= FEWEST:
        begin = int(grid.starts[-1])
        counts = np.diff(np.searchsorted(allocs, grid.starts))
        here = int((allocs >= begin).sum())
        if not len(counts) or here < LONGER * int(np.median(counts)):
            return NO_STEPS
        return _from_period(device, active, begin, event)
    code = phases(snapshot.stacks)
    for part in (2, 4, 8):
        begin = int(allocs[len(allocs) - len(allocs) // part]) if len(allocs) >= part * 8 else event
        found = _from_period(device, active, begin, event)
        if not len(found):
            continue
        used = _stacks_between(device, int(found.starts[0]), int(found.starts[-1]))
        modules = bool((code[used] == FORWARD).any())
        if modules and not _within_module(snapshot, used):
            return found
    return NO_STEPS


def _stacks_between(device: DeviceSnapshot, first: int, last: int) -> NDArray[np.int32]:
    """Distinct stacks of the allocations from one event to another."""
    trace = device.trace
    assert trace is not None
    return coded(trace.stack[first:last][trace.action[first:last] == Action.ALLOC])[0]


def _within_module(snapshot: Snapshot, stacks: NDArray[np.int32]) -> bool:
    """Whether all stacks pass through one and the same module call, forward or backward."""
    common: list[Frame] | None = None
    for stack in stacks.tolist():
        outer = list(reversed(snapshot.stacks[stack]))
        if common is None:
            common = outer
            continue
        same = 0
        while same < min(len(common), len(outer)) and common[same] == outer[same]:
            same += 1
        del common[same:]
    return any(f.name in ("_call_impl", "_wrapped_call_impl", "forward", "backward") for f in common or ())


def _from_annotations(annotations: tuple[Annotation, ...], device: DeviceSnapshot, event: int) -> StepGrid | None:
    trace = device.trace
    assert trace is not None
    if trace.time_us is None or not annotations:
        return None
    time_us = trace.time_us[: event + 1]
    groups: dict[str, list[Annotation]] = {}
    for a in annotations:
        if a.device == device.index and time_us[0] <= a.time_us <= time_us[-1]:
            groups.setdefault(without_number(a.name), []).append(a)

    def marks(name: str) -> list[Annotation]:
        # A profiler's step is whole from start to start; an optimizer's step ends where a training step ends.
        stage = "START" if "step" in name.lower() and not name.startswith("Optimizer.") else "END"
        if name.startswith("Optimizer.zero_grad"):
            stage = "START"
        chosen = [a for a in groups[name] if a.stage == stage]
        return chosen or groups[name]

    def rank(name: str) -> tuple[int, int]:
        for place, start in enumerate(("ProfilerStep", "Optimizer.step", "Optimizer.zero_grad")):
            if name.startswith(start):
                return (place, 0)
        return (3 if "step" in name.lower() else 4, -len(groups[name]))

    for name in sorted(groups, key=rank):
        found = marks(name)
        times = np.array([a.time_us for a in found], np.int64)
        starts = coded(np.searchsorted(time_us, times, side="left"))[0]
        starts = starts[(starts > 0) & (starts <= event)]
        if len(starts) >= FEWEST:
            names = tuple(a.name for a in found) if len(found) == len(starts) else ()
            return StepGrid("annotation", name, starts.astype(np.int64), names if len(set(names)) > 1 else ())
    return None


def signatures(device: DeviceSnapshot) -> NDArray[np.int64]:
    """int64[events]: what makes two allocations "the same": the stack, or without stacks the size and stream."""
    trace = device.trace
    assert trace is not None
    if bool((trace.stack >= 0).any()):
        return trace.stack.astype(np.int64)
    return np.asarray(trace.size * 64 + (trace.stream % np.uint64(61)).astype(np.int64))


def _from_period(device: DeviceSnapshot, active: NDArray[np.int64], begin: int, event: int) -> StepGrid:
    """Steps from signatures that recur once a step.

    Signatures that come equally often and regularly are taken together; the largest such family of the smallest count
    is the step (a layer's allocations come once a layer, a step's once a step).
    """
    trace = device.trace
    assert trace is not None
    allocs = begin + np.flatnonzero(trace.action[begin : event + 1] == Action.ALLOC)
    if len(allocs) < 2 * FEWEST:
        return NO_STEPS
    values, codes = coded(signatures(device)[allocs])
    order = grouped(codes, len(values))
    counts = np.bincount(codes, minlength=len(values))
    ends = np.cumsum(counts)
    reach = order[ends - 1] - order[ends - counts]
    # Often enough, over most of the trace, and not back to back, which is a loop within a step.
    likely = (counts >= FEWEST) & (reach >= 0.4 * len(allocs)) & (reach >= 2 * (counts - 1))
    regular: dict[int, list[tuple[float, NDArray[np.int64]]]] = {}
    for code in np.flatnonzero(likely):
        at = order[ends[code] - counts[code] : ends[code]]
        gaps = np.diff(at)
        mean = float(gaps.mean())
        if len(allocs) - at[-1] > 2.5 * float(np.median(gaps)) + 8:  # not steady until the moment
            continue
        spread = float(gaps.std()) / mean
        if spread <= _REGULAR:
            regular.setdefault(int(counts[code]), []).append((spread, at))
    if not regular:
        return NO_STEPS
    weight: Counter[int] = Counter()
    for count in regular:
        weight[count] = sum(len(regular.get(c, ())) for c in (count - 1, count, count + 1))
    most = max(weight.values())
    count = min(c for c, w in weight.items() if w >= max(0.5 * most, 1))
    family = [item for c in (count - 1, count, count + 1) for item in regular.get(c, ())]
    # The boundary is where memory is lowest: between the steps, when the last one's tensors are gone.
    best = min(family, key=lambda item: (float(np.median(active[np.maximum(allocs[item[1]] - 1, 0)])), item[0]))
    return StepGrid("period", "", allocs[best[1]].astype(np.int64))
