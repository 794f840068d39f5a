"""Fragmentation: enough memory was reserved but idle, in pieces or places that the request could not use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from oomctl.analysis.books import of_request
from oomctl.analysis.incident import Incident
from oomctl.diagnosis.base import Finding
from oomctl.model.report import EvidenceItem, WhatIf
from oomctl.units import format_size

SUBSTANTIAL: Final = 0.10
"""Idle (or rounding) memory is a cause from this part of the limit on: every full card has a little idle."""

PROVED: Final = 0.05
"""Idle memory and the request are each at least this part of the limit where only a replay makes the case."""


def _served(replayed: WhatIf | None) -> list[str]:
    """Settings under which replay serves the failing request, as long as the model reproduces the recording."""
    if replayed is None or replayed.identity.reason:
        return []
    return [r.alloc_conf for r in replayed.runs if r.served and r.certainty in ("firm", "likely")]


def _places(parts: Mapping[str, int]) -> str:
    """Where the idle bytes lie, largest part first."""
    words = {
        "split_segments": "between live blocks",
        "private_pools": "in private pools",
        "stream_stranded": "of other streams or the other pool",
    }
    there = sorted(((size, words[name]) for name, size in parts.items() if size), reverse=True)
    return ", ".join(f"{format_size(size)} {where}" for size, where in there)


def _holes(incident: Incident, largest: int) -> str:
    """How many holes there were, and which of them the request could have used by pool and stream."""
    heap = incident.heap
    count = len(heap.hole_size)
    usable = int(((heap.pool[heap.hole_segment] == 0) & of_request(heap, incident.request)).sum())
    text = f"{count:,} {'hole' if count == 1 else 'holes'}, median {format_size(int(np.median(heap.hole_size)))}"
    if not usable:
        return f"{text}, none of them of the request's pool and stream"
    if usable < count:
        text += f", {usable:,} of them of the request's pool and stream"
    return f"{text}, the largest {format_size(largest)}"


@dataclass(frozen=True)
class Fragmentation:
    """X fits with perfect packing, and the idle memory is a substantial part of the limit."""

    cls: str = "fragmentation"

    def judge(self, incident: Incident, replayed: WhatIf | None = None) -> Finding | None:
        """See `Detector.judge`."""
        b, request = incident.budget, incident.request
        if not incident.failed or request is None or request.size is None or b.limit is None:
            return None
        assert b.reserved is not None
        assert b.active is not None
        idle = b.reserved - b.active
        need, limit = request.size, b.limit
        rounding = b.rounding or 0
        fits = need <= limit - b.active + (b.pending_free or 0)
        if rounding > idle and rounding >= SUBSTANTIAL * limit and need <= limit - b.active + rounding:
            return self._rounding(incident, rounding)
        # A flush precedes every failure and returns whole idle segments: those that are left belong to a pool that
        # may not be touched, even where the recording does not name it.
        kept = b.idle_whole_segments or 0
        parts = {
            "split_segments": b.idle_split or 0,
            "stream_stranded": b.idle_other_streams or 0,
            "private_pools": (b.idle_private_pools or 0) + kept,
        }
        subtype = max(parts, key=lambda k: parts[k])
        if (
            subtype == "split_segments"
            and incident.conf.expandable_segments
            and bool(incident.heap.is_expandable.any())
        ):
            subtype = "granule_pinned"
        largest = b.largest_hole or 0
        asker = f" asked for by {request.stack_label}" if request.stack_label else " asked for"
        where = {
            "private_pools": "most of it lies in private pools (CUDA graphs, MemPools), which serve nothing else",
            "stream_stranded": "most of it is cached for other streams",
        }.get(subtype, f"the largest usable hole has {format_size(largest)}")
        headline = (
            f"{format_size(idle)} of the {format_size(b.reserved)} reserved are idle, yet the "
            f"{format_size(need)}{asker} could not be served: {where}"
        )
        evidence = [
            EvidenceItem(
                f"{format_size(b.active)} were live: with perfect packing {format_size(max(limit - b.active, 0))} "
                f"would have been left under the limit of {format_size(limit)}, against {format_size(need)} asked for",
                (("active", b.active), ("limit", limit), ("requested", need)),
            ),
            EvidenceItem(
                f"{idle / max(b.reserved, 1):.0%} of the reserved memory was idle: {_places(parts)}",
                (("idle", idle), ("reserved", b.reserved)),
            ),
        ]
        holes = incident.heap.hole_size
        if len(holes):
            fitting = int((holes >= need).sum())
            evidence.append(
                EvidenceItem(
                    f"{_holes(incident, largest)}; the request needs {format_size(need)} in one piece",
                    (("holes_count", len(holes)), ("fitting_count", fitting), ("largest_hole", largest)),
                )
            )
        served = _served(replayed)
        # A smaller part is enough where a replay serves a request that is itself no last straw.
        proved = bool(served) and min(idle, need) >= PROVED * limit
        substantial = idle >= SUBSTANTIAL * limit or proved
        if served:
            evidence.append(
                EvidenceItem(f"replayed on this trace, {served[0] or 'the defaults'} would have served the request")
            )
        strength = 0.9 if substantial and (served or need <= idle) else 0.7 if substantial else 0.2
        undecided = replayed is None or any(r.served is None and r.certainty == "open" for r in replayed.runs)
        possible = fits and undecided and min(idle, need) >= PROVED * limit
        return Finding(self.cls, subtype, idle, fits and substantial, strength, headline, tuple(evidence), possible)

    def _rounding(self, incident: Incident, rounding: int) -> Finding:
        b, request = incident.budget, incident.request
        assert request is not None
        assert request.size is not None
        assert b.active is not None
        divisions = sorted({d for d in incident.conf.roundup_power2_divisions if d > 1})
        cause = f"roundup_power2_divisions:{divisions[0]}" if divisions else "rounding and rests too small to split off"
        headline = (
            f"{format_size(rounding)} of the {format_size(b.active)} in use are rounding ({cause}): the "
            f"{format_size(request.size)} request would have fitted without it"
        )
        evidence = (
            EvidenceItem(
                f"the program asked for {format_size(b.requested or 0)}, the allocator handed out "
                f"{format_size(b.active)}: {rounding / max(b.active, 1):.0%} of it is rounding",
                (("requested", b.requested or 0), ("active", b.active), ("rounding", rounding)),
            ),
            EvidenceItem(
                f"only {format_size((b.reserved or 0) - b.active)} were idle outside blocks"
                if (b.reserved or 0) > b.active
                else "no memory was idle outside blocks",
                (("idle", (b.reserved or 0) - b.active),),
            ),
        )
        return Finding(self.cls, "rounding", rounding, True, 0.9, headline, evidence)
