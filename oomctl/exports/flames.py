"""Flame graphs of memory: folded stacks, and speedscope's file with one profile a moment.

Every stack weighs the bytes that are live from it: at the failure, at the peak, or what grew from step to step.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, Final

import numpy as np

from oomctl.analysis.frames import frame_kind
from oomctl.analysis.holdings import event_at
from oomctl.analysis.incident import Incident, incident
from oomctl.analysis.moment import heap_at
from oomctl.errors import OomctlError
from oomctl.exports.base import Job
from oomctl.model.stacks import NO_STACK, Frame

SCHEMA: Final = "https://www.speedscope.app/file-format-schema.json"
NOWHERE: Final = "(recorded without a stack)"
Weights = dict[int, int]
"""Bytes by stack."""


class Folded:
    """One line a stack, outermost frame first: flamegraph.pl, inferno, Grafana's and Brendan Gregg's tools read it."""

    name = "folded"
    suffixes = (".folded", ".collapsed")
    what = "Folded stacks for flame graphs, weighed by bytes at --at oom, peak, leak, end or an event."

    def write(self, job: Job, path: str) -> tuple[str, ...]:
        """Writes the lines in order of weight."""
        found = incident(*job.chosen())
        kind = job.at or ("oom" if found.failed else "peak")
        weights = weigh(found, kind)
        stacks = found.snapshot.stacks
        lines: Counter[str] = Counter()
        for stack, size in weights.items():
            frames = [NOWHERE] if stack == NO_STACK else [_fold(frame) for frame in reversed(_python(stacks[stack]))]
            lines[";".join(frames)] += size
        with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
            stream.writelines(f"{line} {size}\n" for line, size in lines.most_common())
        return (f"bytes at {kind}: {sum(weights.values()):,}",)


class Speedscope:
    """A file for speedscope.app with a profile each for the failure, the peak, the end and what leaked."""

    name = "speedscope"
    suffixes = (".speedscope.json", ".speedscope")
    what = "Flame graphs for speedscope.app: at the failure, at the peak, at the end, and what leaked."

    def write(self, job: Job, path: str) -> tuple[str, ...]:
        """Writes one object."""
        found = incident(*job.chosen())
        stacks = found.snapshot.stacks
        numbers: dict[Frame, int] = {}
        profiles: list[dict[str, Any]] = []
        remarks = []
        for kind in [job.at] if job.at else ["oom", "peak", "leak", "end"]:
            try:
                weights = weigh(found, kind)
            except OomctlError as error:
                if job.at:
                    raise
                remarks.append(f"no profile at {kind}: {error.message}")
                continue
            rows = sorted(weights.items(), key=lambda item: -item[1])
            samples = []
            for stack, _ in rows:
                frames = (Frame("", 0, NOWHERE),) if stack == NO_STACK else _python(stacks[stack])
                samples.append([numbers.setdefault(frame, len(numbers)) for frame in reversed(frames)])
            sizes = [size for _, size in rows]
            profiles.append(
                {
                    "type": "sampled", "name": f"live bytes at {kind}" if kind != "leak" else "bytes that grow",
                    "unit": "bytes", "startValue": 0, "endValue": sum(sizes), "samples": samples, "weights": sizes,
                }
            )  # fmt: skip
        shared = [
            {"name": frame.name, **({"file": frame.filename, "line": frame.line} if frame.filename else {})}
            for frame in numbers
        ]
        data = {
            "$schema": SCHEMA, "name": f"GPU {found.device.index} memory", "activeProfileIndex": 0,
            "exporter": "oomctl", "shared": {"frames": shared}, "profiles": profiles,
        }  # fmt: skip
        with open(path, "w", encoding="utf-8") as stream:
            json.dump(data, stream)
        return tuple(remarks)


def weigh(found: Incident, kind: str) -> Weights:
    """Bytes by stack: live ones at a moment, which sum to the active bytes, or those that grew.

    Args:
        found: One device.
        kind: "leak" for what grew beyond what one step needs, else a moment as `event_at` takes it.

    Raises:
        OomctlError: There is no such moment, or nothing grew.
    """
    if kind == "leak":
        growth = found.growth
        if found.growth_by_size or not bool(growth.growing.any()):
            raise OomctlError(
                "nothing grew from step to step" if not found.growth_by_size else "what grew has no stacks",
                "ask for --at oom, peak or end",
            )
        grown = zip(growth.groups.tolist(), growth.grown.tolist(), growth.growing.tolist(), strict=True)
        return {stack: size for stack, size, grows in grown if grows and size > 0}
    event, _ = event_at(found.device, found.lives, kind)
    conf = found.conf
    heap = heap_at(found.device, found.lives, event, conf.max_split_size, conf.max_non_split_rounding)
    stacks, inverse = np.unique(found.lives.stack[heap.live], return_inverse=True)
    sums = np.zeros(len(stacks), np.int64)
    np.add.at(sums, inverse, heap.live_size)
    weights: Weights = {}
    for stack, size in zip(stacks.tolist(), sums.tolist(), strict=True):
        key = stack if stack >= 0 and len(found.snapshot.stacks[stack]) else NO_STACK
        weights[key] = weights.get(key, 0) + size
    return weights


def _python(frames: tuple[Frame, ...]) -> tuple[Frame, ...]:
    """Frames without those of C++, unless there are no others; innermost first."""
    return tuple(frame for frame in frames if frame_kind(frame) != "cpp") or frames


def _fold(frame: Frame) -> str:
    """One frame on one line, without the separators of the format."""
    text = f"{frame.name} ({frame.filename}:{frame.line})" if frame.filename else frame.name
    return "".join(c if c.isprintable() else " " for c in text).replace(";", ":")
