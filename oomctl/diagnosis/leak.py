"""Leak: some blocks are kept step after step, and without them the request would have fitted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from oomctl.analysis.incident import Incident
from oomctl.analysis.phases import LOAD, phases
from oomctl.diagnosis.base import Finding
from oomctl.model.report import EvidenceItem, WhatIf
from oomctl.model.snapshot import Action
from oomctl.units import format_size

NOTHING_FREED: Final = 0.02
"""Freed over allocated bytes below which the program has only ever taken memory."""

SMALLEST: Final = 0.05
"""Growth of less than this part of the live bytes is no cause of a failure."""


@dataclass(frozen=True)
class Leak:
    """Growth at the same phase of successive steps that lasts until the failure."""

    cls: str = "leak"

    def judge(self, incident: Incident, replayed: WhatIf | None = None) -> Finding | None:
        """See `Detector.judge`."""
        growth, b, request = incident.growth, incident.budget, incident.request
        if not bool(growth.growing.any()) or only_loading(incident):
            return None
        grown = leaked_bytes(incident)
        if grown <= 0:
            return None
        per_step = growth.per_step
        steps = growth.steps
        unit = "step" if incident.grid.source == "annotation" else "round"
        first = int(np.argmax(np.where(growth.growing, growth.grown, 0)))
        every = int(growth.every[first])
        rhythm = f"every {every} {unit}s" if every > 1 else f"per {unit}"
        amount = per_step * every if every > 1 else per_step
        headline = (
            f"{format_size(grown)} are held from earlier steps and grow by {format_size(amount)} {rhythm} over "
            f"{steps:,} {unit}s"
        )
        count = int(growth.growing.sum())
        alike = "size" if incident.growth_by_size else "stack"
        made = f"all of one {alike}" if count == 1 else f"of {count:,} {alike}s"
        evidence = [
            EvidenceItem(
                f"live bytes at the same phase of {steps:,} successive {unit}s grew by {format_size(per_step)} a "
                f"{unit}, {made}, until the {'failure' if incident.failed else 'end'}",
                (("per_step", per_step), ("steps_count", steps), ("grown", grown)),
            )
        ]
        held = growth.held[growth.growing].sum(axis=0)
        samples = [int(held[i]) for i in np.linspace(0, len(held) - 1, min(5, len(held)), dtype=int)]
        evidence.append(
            EvidenceItem(
                f"held there, from the first {unit} to the {'failure' if incident.failed else 'end'}: "
                + ", ".join(format_size(s) for s in samples),
                tuple((f"held_{k}", s) for k, s in enumerate(samples)),
            )
        )
        need = request.size if request is not None and request.size is not None else 0
        if b.limit is not None and b.active is not None:
            evidence.append(
                EvidenceItem(
                    f"without it {format_size(max(b.limit - b.active + grown, 0))} would have been free for the "
                    f"{format_size(need)} asked for",
                    (("room_without", b.limit - b.active + grown), ("requested", need)),
                )
            )
        enough = b.limit is None or b.active is None or need <= b.limit - b.active + grown
        large = grown >= SMALLEST * max(b.active or 0, 1)
        strength = 0.9 if steps >= 5 else 0.6
        if incident.growth_by_size:
            strength -= 0.1
        return Finding(self.cls, None, grown, enough and large, strength, headline, tuple(evidence))


def leaked_bytes(incident: Incident) -> int:
    """Bytes of the growing groups that steps before the last one left behind.

    Where the beginning of the trace is missing, blocks from before it with the same stack count as leaked too.
    """
    growth = incident.growth
    if incident.truncated and not incident.growth_by_size and bool(growth.growing.any()):
        held = growth.held[growth.growing]
        one = np.maximum(np.diff(held, axis=1).max(axis=1), 0)
        return max(int((held[:, -1] - one).sum()), growth.total)
    return growth.total


def only_loading(incident: Incident) -> bool:
    """Whether the program has only loaded or preallocated so far: then growth is no leak.

    No module, backward pass or optimizer ran, and either nothing was ever freed or constructors and loaders made nearly
    all live bytes.
    """
    trace = incident.device.trace
    if trace is None:
        return False
    heap, lives = incident.heap, incident.lives
    code = phases(incident.snapshot.stacks)[lives.stack]
    if bool((code > LOAD).any()) or incident.truncated:
        return False
    loaded = int(heap.live_size[code[heap.live] == LOAD].sum())
    if incident.has_stacks and loaded >= 0.9 * max(heap.active, 1):
        return True
    taken = int(trace.size[trace.action == Action.ALLOC].sum())
    freed = int(trace.size[trace.action == Action.FREE_COMPLETED].sum())
    return freed <= NOTHING_FREED * max(taken, 1)
