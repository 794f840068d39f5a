"""Capacity: what stays, or the loading of it, fills the limit by itself."""

from __future__ import annotations

from dataclasses import dataclass

from oomctl.analysis.incident import Incident
from oomctl.diagnosis.base import Finding
from oomctl.diagnosis.leak import only_loading
from oomctl.diagnosis.peak import ROOMY, step_shape
from oomctl.model.report import EvidenceItem, WhatIf
from oomctl.units import format_size


@dataclass(frozen=True)
class Capacity:
    """The floor itself, or loading it, fills the limit; little was ever freed."""

    cls: str = "capacity"

    def judge(self, incident: Incident, replayed: WhatIf | None = None) -> Finding | None:
        """See `Detector.judge`."""
        b, request = incident.budget, incident.request
        if not incident.failed or b.limit is None or b.active is None:
            return None
        need = request.size if request is not None and request.size is not None else 0
        loading = only_loading(incident)
        shape = step_shape(incident)
        floor = b.active if loading else shape.floor
        what = "weights and buffers being loaded take" if loading else "what stays from step to step takes"
        if incident.device.trace is None and not loading:
            what = "what was loaded takes"
        asker = f" by {request.stack_label}" if request is not None and request.stack_label else ""
        headline = (
            f"{what} {format_size(floor)} of the {format_size(b.limit)} that the allocator may use; "
            f"the next {format_size(need)}{asker} did not fit"
        )
        evidence = (
            EvidenceItem(
                f"{format_size(floor)} are permanent: {floor / max(b.limit, 1):.0%} of the limit",
                (("floor", floor), ("limit", b.limit)),
            ),
            EvidenceItem(
                f"only {format_size((b.reserved or 0) - b.active)} of the reserved memory were idle",
                (("idle", (b.reserved or 0) - b.active),),
            ),
        )
        full = floor >= ROOMY * b.limit or loading
        return Finding(self.cls, None, floor, full, 0.9 if loading else 0.7, headline, evidence)
