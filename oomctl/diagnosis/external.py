"""External: memory outside this allocator is what the request lacked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from oomctl.analysis.incident import Incident
from oomctl.diagnosis.base import Finding
from oomctl.diagnosis.leak import leaked_bytes
from oomctl.diagnosis.outside import holders
from oomctl.diagnosis.peak import step_shape
from oomctl.model.report import EvidenceItem, WhatIf
from oomctl.units import GIB, format_size

CONTEXT: Final = 2 * GIB
"""An ordinary CUDA context with cuBLAS, cuDNN and NCCL stays below this."""

SMALL_PART: Final = 1 / 12
"""A process that holds less than this part of the card has hardly had a card at all."""

SMALLEST_CARD: Final = 7 * GIB // 2
"""What the smallest current card (4 GiB) leaves beside a context."""

STEADY: Final = 0.2
"""A program is steady when less than this part of its live bytes is growth."""


@dataclass(frozen=True)
class External:
    """X fits if memory outside the allocator, beyond an ordinary context, were gone; and that is what is abnormal."""

    cls: str = "external"

    def judge(self, incident: Incident, replayed: WhatIf | None = None) -> Finding | None:
        """See `Detector.judge`."""
        b, request = incident.budget, incident.request
        if not incident.failed or b.limit_kind != "device" or b.limit is None or b.reserved is None:
            return None
        if request is None or request.segment_size is None:
            return None
        outside = self._outside(incident)
        reasons = self._reasons(incident, outside[1] if outside else None)
        if outside is None:
            # Without the card's size only the program's own past can show that room was taken from it.
            if not reasons:
                return None
            headline = (
                f"the card could give this process only {format_size(b.limit)} (it has {format_size(b.reserved)} "
                f"reserved): memory outside PyTorch's allocator took the rest"
            )
            return Finding(self.cls, None, request.segment_size, True, 0.6, headline, reasons)
        subtype, share = outside
        if share < request.segment_size or b.device_total is None:
            return None
        whole = max(b.device_total - (b.free or 0) - b.reserved, 0)
        who, held = holders(b.other_processes, b.non_pytorch, whole, subtype)
        headline = (
            f"{who} {format_size(held)} of the {format_size(b.device_total)} card; this process has "
            f"{format_size(b.reserved)} reserved and could not get {format_size(request.segment_size)} more"
        )
        first = EvidenceItem(
            f"{format_size(b.free or 0)} of {format_size(b.device_total)} were free on the card, "
            f"{format_size(held)} held from outside",
            (("free", b.free or 0), ("device_total", b.device_total), ("outside", held)),
        )
        strength = 0.9 if reasons else 0.5
        return Finding(self.cls, subtype, share, bool(reasons), strength, headline, (first, *reasons))

    @staticmethod
    def _outside(incident: Incident) -> tuple[str, int] | None:
        """(subtype, bytes) held by others or by this process's libraries; None where the card's size is unknown."""
        b = incident.budget
        if b.device_total is None or b.reserved is None:
            return None
        rest = max(b.device_total - (b.free or 0) - b.reserved, 0)
        own = b.non_pytorch
        others = b.other_processes
        if not others:
            others = max(rest - (CONTEXT if own is None else own), 0)
        excess = max((own or 0) - CONTEXT, 0)
        return ("other_processes", others) if others >= excess else ("non_pytorch", excess)

    @staticmethod
    def _reasons(incident: Incident, share: int | None) -> tuple[EvidenceItem, ...]:
        """Why the memory outside is what is abnormal, and not what the program did."""
        b, message, request = incident.budget, incident.message, incident.request
        assert request is not None
        assert request.segment_size is not None
        assert b.reserved is not None
        assert b.limit is not None
        found: list[EvidenceItem] = []
        wanted = b.reserved + request.segment_size
        if message is not None and message.allowed is not None:
            found.append(
                EvidenceItem(
                    f"this process may use {format_size(message.allowed)} but had only {format_size(b.reserved)} "
                    "when the card was full",
                    (("allowed", message.allowed), ("reserved", b.reserved)),
                )
            )
        shape = step_shape(incident)
        demand = (b.active or 0) + (request.size or 0)
        steady = leaked_bytes(incident) < STEADY * max(b.active or 0, 1)
        if shape.highest is not None and steady and demand <= shape.highest * 1.02:
            found.append(
                EvidenceItem(
                    f"earlier steps needed as much ({format_size(shape.highest)} live) and ran; now "
                    f"{format_size(demand)} do not fit",
                    (("highest_before", shape.highest), ("demand", demand)),
                )
            )
        before = int(incident.reserved[: incident.moment.event + 1].max()) if len(incident.reserved) else 0
        if before > b.limit:
            found.append(
                EvidenceItem(
                    f"this process once had {format_size(before)} reserved; at the failure it could get at most "
                    f"{format_size(b.limit)}",
                    (("reserved_before", before), ("limit", b.limit)),
                )
            )
        if b.device_total is None and b.limit < SMALLEST_CARD:
            found.append(
                EvidenceItem(
                    f"the card was full although this process could get only {format_size(b.limit)} of it: no current "
                    "card is that small",
                    (("limit", b.limit),),
                )
            )
        if b.device_total is not None and share is not None:
            little = wanted < SMALL_PART * b.device_total and share >= 0.5 * b.device_total
            if little:
                found.append(
                    EvidenceItem(
                        f"it wants {wanted / b.device_total:.1%} of the card, {share / b.device_total:.1%} is taken "
                        "from outside",
                        (("wanted", wanted), ("outside", share), ("device_total", b.device_total)),
                    )
                )
            excess = max((b.non_pytorch or 0) - CONTEXT, 0)
            if excess >= 0.1 * b.device_total:
                found.append(
                    EvidenceItem(
                        f"{format_size(b.non_pytorch or 0)} of this process are outside PyTorch's allocator; a context "
                        f"with its libraries takes up to {format_size(CONTEXT)}",
                        (("non_pytorch", b.non_pytorch or 0),),
                    )
                )
        return tuple(found)
