"""A trace for ui.perfetto.dev and chrome://tracing: memory as counters, steps and scopes as slices, lives as flows.

The form is the Trace Event Format (JSON), which both read. Times are microseconds from the first event, or numbers of
events where torch recorded no clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.curves import pending_curve
from oomctl.analysis.frames import label, user_frames
from oomctl.analysis.incident import Incident, incident
from oomctl.exports.base import Job, trace_of
from oomctl.model.snapshot import Action, Annotation
from oomctl.units import format_size

TOP_STACKS: Final = 20
"""Stacks whose blocks are drawn from allocation to free: those that allocate the most bytes."""
FLOWS: Final = 20_000
"""Blocks that are drawn so, the largest ones; a viewer grows slow with more."""
COUNTERS: Final = ("allocated", "reserved", "idle")
_STEPS, _FIRST_STACK, _SCOPES = 1, 100, 1000
"""Track numbers."""


class Perfetto:
    """Counters allocated, reserved and idle; slices for steps and annotations; flows for the top stacks."""

    name = "perfetto"
    suffixes = (".trace.json", ".perfetto.json", ".perfetto-trace")
    what = "A trace for ui.perfetto.dev: memory over time, steps, annotations, lives of the largest stacks' blocks."

    def write(self, job: Job, path: str) -> tuple[str, ...]:
        """Writes event by event."""
        snapshot, device = job.chosen()
        trace = trace_of(device)
        found = incident(snapshot, device)
        clock = trace.time_us if trace.time_us is not None else np.arange(len(trace), dtype=np.int64)
        start = int(clock[0])
        drawing = _Drawing(found, clock - start, start)
        with open(path, "w", encoding="utf-8") as stream:
            drawing.write(stream)
        return drawing.remarks()


class _Drawing:
    """One device's trace as events of the format."""

    def __init__(self, found: Incident, clock: NDArray[np.int64], start: int) -> None:
        self.found, self.clock, self.start = found, clock, start
        self.pid = found.device.index
        self.lives = 0

    def write(self, stream: TextIO) -> None:
        """Writes the whole object, an event a line."""
        stream.write('{"displayTimeUnit": "ms", "traceEvents": [')
        first = True
        for event in self._events():
            stream.write(("\n" if first else ",\n") + json.dumps(event, separators=(",", ":")))
            first = False
        timed = self.found.device.trace is not None and self.found.device.trace.time_us is not None
        about = {
            "tool": "oomctl",
            "device": self.pid,
            "clock": "microseconds from the first event" if timed else "number of the event",
            "first_event_us_since_epoch": self.start if timed else None,
        }
        stream.write('\n], "otherData": ' + json.dumps(about) + "}\n")

    def remarks(self) -> tuple[str, ...]:
        """What was left out."""
        if self.lives > FLOWS:
            return (f"drew {FLOWS:,} of the {self.lives:,} blocks of the top {TOP_STACKS} stacks, the largest ones",)
        return ()

    def _events(self) -> Iterator[dict[str, Any]]:
        yield self._named("process_name", f"GPU {self.pid} memory", 0)
        yield from self._counters()
        yield from self._failures()
        yield from self._steps()
        yield from self._scopes()
        yield from self._flows()

    def _named(self, kind: str, name: str, track: int) -> dict[str, Any]:
        return {"ph": "M", "pid": self.pid, "tid": track, "name": kind, "args": {"name": name}}

    def _slice(self, name: str, track: int, begin: int, length: int, **args: Any) -> dict[str, Any]:
        return {
            "ph": "X", "pid": self.pid, "tid": track, "ts": begin, "dur": length, "name": name, "cat": "oomctl",
            "args": args,
        }  # fmt: skip

    def _counters(self) -> Iterator[dict[str, Any]]:
        """Where any of them changes; every value is kept, so that the highest is the peak."""
        found = self.found
        reserved = found.reserved
        curves = (found.active - pending_curve(found.lives), reserved, reserved - found.active)
        changed = np.ones(len(reserved), bool)
        changed[1:] = np.logical_or.reduce([np.diff(curve) != 0 for curve in curves])
        rows = np.flatnonzero(changed)
        columns = (self.clock[rows], *(curve[rows] for curve in curves))
        for time, *values in zip(*(column.tolist() for column in columns), strict=True):
            for name, value in zip(COUNTERS, values, strict=True):
                yield {"ph": "C", "pid": self.pid, "ts": time, "name": name, "args": {"bytes": value}}

    def _failures(self) -> Iterator[dict[str, Any]]:
        trace = self.found.device.trace
        assert trace is not None
        for event in np.flatnonzero(trace.action == Action.OOM).tolist():
            size = int(trace.size[event])
            yield {
                "ph": "i", "s": "p", "pid": self.pid, "tid": 0, "ts": int(self.clock[event]), "cat": "oomctl",
                "name": f"out of memory: {format_size(size)}", "args": {"event": event, "bytes": size},
            }  # fmt: skip

    def _steps(self) -> Iterator[dict[str, Any]]:
        grid = self.found.grid
        if not len(grid):
            return
        yield self._named("thread_name", "steps", _STEPS)
        starts = self.clock[grid.starts].tolist()
        ends = [*starts[1:], int(self.clock[-1])]
        for number, (begin, end) in enumerate(zip(starts, ends, strict=True)):
            name = grid.labels[number] if grid.labels else f"step {number}"
            yield self._slice(name, _STEPS, begin, max(end - begin, 0), event=int(grid.starts[number]))

    def _scopes(self) -> Iterator[dict[str, Any]]:
        """record_function scopes; those that overlap without nesting go on tracks of their own."""
        trace = self.found.device.trace
        if trace is None or trace.time_us is None:
            return
        tracks: list[list[int]] = []
        for begin, end, name in _paired(self.found.snapshot.annotations, self.pid):
            number = _track(tracks, begin, end)
            if number == len(tracks):
                tracks.append([])
                yield self._named("thread_name", "annotations", _SCOPES + number)
            tracks[number].append(end)
            yield self._slice(name, _SCOPES + number, begin - self.start, end - begin)

    def _flows(self) -> Iterator[dict[str, Any]]:
        """A mark at the allocation, one at the free, and an arrow between them, for blocks of the top stacks."""
        lives = self.found.lives
        known = (lives.born >= 0) & (lives.stack >= 0)
        stacks = np.unique(lives.stack[known])
        weight = np.zeros(int(lives.stack.max(initial=-1)) + 1, np.int64)
        np.add.at(weight, lives.stack[known], lives.size[known])
        top = stacks[np.argsort(-weight[stacks], kind="stable")][:TOP_STACKS]
        chosen = np.flatnonzero(known & np.isin(lives.stack, top))
        self.lives = len(chosen)
        chosen = chosen[np.argsort(-lives.size[chosen], kind="stable")][:FLOWS]
        track_of = {}
        for number, stack in enumerate(top.tolist()):
            frames = user_frames(self.found.snapshot.stacks[stack])
            where = label(frames[0]) if frames else f"stack {stack}"
            track_of[stack] = _FIRST_STACK + number
            yield self._named("thread_name", f"{where} ({format_size(int(weight[stack]))} in all)", track_of[stack])
        for life in np.sort(chosen).tolist():
            track = track_of[int(lives.stack[life])]
            size, born, died = int(lives.size[life]), int(lives.born[life]), int(lives.died[life])
            begin = int(self.clock[born])
            arrow = {"pid": self.pid, "tid": track, "cat": "life", "name": "life", "id": life}
            yield self._slice(f"alloc {format_size(size)}", track, begin, 1, bytes=size, event=born)
            if died < lives.events:
                end = int(self.clock[died])
                yield {"ph": "s", **arrow, "ts": begin}
                yield self._slice(f"free {format_size(size)}", track, end, 1, bytes=size, event=died)
                yield {"ph": "f", "bp": "e", **arrow, "ts": end}


def _track(tracks: list[list[int]], begin: int, end: int) -> int:
    """The first track where a scope nests or follows, given the ends of what is open on each; else a new one."""
    for number, open_ends in enumerate(tracks):
        while open_ends and open_ends[-1] <= begin:
            open_ends.pop()
        if not open_ends or end <= open_ends[-1]:
            return number
    return len(tracks)


def _paired(annotations: tuple[Annotation, ...], device: int) -> list[tuple[int, int, str]]:
    """(begin, end, name) of every scope with both ends, in order of begin, the longer one first."""
    open_scopes: dict[str, list[int]] = {}
    found = []
    for one in annotations:
        if one.device != device:
            continue
        if one.stage == "START":
            open_scopes.setdefault(one.name, []).append(one.time_us)
        elif one.stage == "END" and open_scopes.get(one.name):
            found.append((open_scopes[one.name].pop(), one.time_us, one.name))
    return sorted(found, key=lambda scope: (scope[0], -scope[1]))
