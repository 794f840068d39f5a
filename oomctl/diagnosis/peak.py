"""Transient peak: the steady state fits; what one step takes for a while, with the request, does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from oomctl.analysis.incident import Incident
from oomctl.analysis.phases import LOAD, phases
from oomctl.diagnosis.base import Finding
from oomctl.diagnosis.leak import only_loading
from oomctl.model.report import EvidenceItem, WhatIf
from oomctl.units import format_size

ROOMY: Final = 0.85
"""The floor fits with room when it is below this part of the limit."""

NOTABLE: Final = 0.05
"""A step that needs this part of the limit more than the steps before it is out of the ordinary."""


@dataclass(frozen=True, slots=True)
class StepShape:
    """The step under way against the steps before it, in bytes.

    Attributes:
        floor: Live when the step began.
        above: Live above the floor at the failure, and the request.
        usual: Median over earlier steps of their highest live bytes above their floor; None without earlier steps.
        highest: Highest demand (live bytes) of any earlier step; None without earlier steps.
    """

    floor: int
    above: int
    usual: int | None
    highest: int | None


def step_shape(incident: Incident) -> StepShape:
    """Measures the step under way; without steps, the floor is what constructors and loaders made."""
    active, grid = incident.active, incident.grid
    heap = incident.heap
    need = incident.request.size if incident.request is not None and incident.request.size is not None else 0
    if len(grid) >= 3 and len(active):
        starts = grid.starts
        floor = int(active[max(int(starts[-1]) - 1, 0)])
        peaks = np.maximum.reduceat(active[: int(starts[-1])], starts[:-1])
        floors = active[np.maximum(starts[:-1] - 1, 0)]
        return StepShape(floor, max(heap.active + need - floor, 0), int(np.median(peaks - floors)), int(peaks.max()))
    code = phases(incident.snapshot.stacks)[incident.lives.stack[heap.live]]
    floor = int(heap.live_size[code == LOAD].sum())
    return StepShape(floor, heap.active - floor + need, None, None)


@dataclass(frozen=True)
class TransientPeak:
    """The floor fits with room, and what stands above it was made within the current step."""

    cls: str = "transient_peak"

    def judge(self, incident: Incident, replayed: WhatIf | None = None) -> Finding | None:
        """See `Detector.judge`."""
        b, request = incident.budget, incident.request
        if not incident.failed or request is None or request.size is None or b.limit is None:
            return None
        need, limit = request.size, b.limit
        asker = f" by {request.stack_label}" if request.stack_label else ""
        card = b.device_total or limit
        if need > max(card, limit):
            whole = "the card" if b.device_total else "the limit"
            most = "the whole card" if b.device_total else "everything the allocator may use"
            headline = f"one request of {format_size(need)}{asker} is larger than {most} ({format_size(card)})"
            item = EvidenceItem(
                f"{format_size(b.active or 0)} were live; "
                f"the request alone is {need / max(card, 1):,.1f} times {whole}",
                (("requested", need), ("limit", limit)),
            )
            return Finding(self.cls, "impossible_request", need, True, 0.95, headline, (item,))
        if only_loading(incident):
            return None
        shape = step_shape(incident)
        roomy = shape.floor <= ROOMY * limit
        rise = shape.above - shape.usual if shape.usual is not None else shape.above
        subtype = "step_growth" if shape.usual is not None else "first_step"
        if need >= 0.5 * limit:
            subtype = "oversized_request"
        base = f" on top of a floor of {format_size(shape.floor)}" if shape.floor else ""
        idle = (b.reserved or 0) - (b.active or 0)
        beside = ""
        if shape.floor + shape.above <= limit and idle > 0:  # the sum alone would have fitted
            beside = f" beside {format_size(idle)} that lie idle in pieces"
        headline = (
            f"this step wants {format_size(shape.above)}{base} ({format_size(need)} of it in one request{asker}), "
            f"more than fits under the limit of {format_size(limit)}{beside}"
        )
        evidence = [
            EvidenceItem(
                f"{format_size(shape.floor)} were live before the step: {shape.floor / max(limit, 1):.0%} of the limit",
                (("floor", shape.floor), ("limit", limit)),
            ),
            EvidenceItem(
                f"the step had made {format_size(max(shape.above - need, 0))} by the failure and asked for "
                f"{format_size(need)} more",
                (("above_floor", shape.above), ("requested", need)),
            ),
        ]
        if shape.usual is not None:
            evidence.append(
                EvidenceItem(
                    f"the steps before needed {format_size(shape.usual)} above their floor (median); this one "
                    f"{format_size(shape.above)}",
                    (("usual", shape.usual), ("rise", rise)),
                )
            )
            strength = 0.9 if rise >= 0.1 * limit else 0.5
        elif incident.device.trace is None:
            headline = (
                f"{format_size(shape.above)} are live or asked for beside {format_size(shape.floor)} that were "
                f"loaded; without events nothing tells whether one step made it or many did"
            )
            evidence, strength = [], 0.2
        else:
            evidence.append(
                EvidenceItem("no whole step came before: this is the first pass, or a single piece of work")
            )
            strength = 0.6
        share = max(rise, 0)
        # Even a high floor is no cause where the steps before ran on top of it.
        ran_before = shape.usual is not None and shape.floor + shape.usual <= limit and share >= NOTABLE * limit
        decisive = share > 0 and (roomy or ran_before) and incident.device.trace is not None
        return Finding(self.cls, subtype, share, decisive, strength, headline, tuple(evidence))
