"""A conclusion drawn from text, and the small helpers that word it."""

from __future__ import annotations

from dataclasses import dataclass, field

from oomctl.diagnosis.text_picture import Picture
from oomctl.model.common import Skipped
from oomctl.model.evidence import Evidence
from oomctl.model.report import Contribution, EvidenceItem
from oomctl.units import format_size

SNAPSHOT = "torch.cuda.memory._record_memory_history(), then _dump_snapshot() in the except block"
SERIES = "torch.cuda.memory_allocated() printed once per step, for at least ten steps"
OTHERS, THIS = "other processes", "this process"
WHAT_GREW = Skipped("whether live memory grows from step to step", "one failure is one point in time", SERIES)
WHO_HOLDS = Skipped("what holds the live memory", "a message has totals only", SNAPSHOT)


@dataclass(frozen=True, slots=True)
class Context:
    """What a rule may look at besides the figures.

    Attributes:
        evidence: Everything.
        phase: What the program was doing.
        large: The failing line, where it multiplies two long dimensions.
        copies: The failing line, where it copies what is there.
        steps: Steps that the text shows before the failure, or None.
        trial: Number of the failing trial of a search, or None.
        recovered: Failures that the program survived.
    """

    evidence: Evidence
    phase: str = "unknown"
    large: str | None = None
    copies: str | None = None
    steps: int | None = None
    trial: int | None = None
    recovered: int = 0


@dataclass(frozen=True, slots=True)
class Opinion:
    """A verdict in the making."""

    cls: str
    subtype: str | None
    confidence: str
    headline: str
    evidence: tuple[EvidenceItem, ...] = ()
    contributing: tuple[Contribution, ...] = ()
    limits: tuple[Skipped, ...] = field(default=())


def size(value: int | None) -> str:
    """A size, or "an unknown amount"."""
    return "an unknown amount" if value is None else format_size(value)


def percent(ratio: float) -> str:
    """A ratio as a whole percentage."""
    return f"{ratio * 100:.0f} %" if ratio >= 0.095 else f"{ratio * 100:.1f} %"


def item(statement: str, **numbers: int | float | None) -> EvidenceItem:
    """One statement with the numbers that carry it; unknown ones are left out."""
    return EvidenceItem(statement, tuple((name, value) for name, value in numbers.items() if value is not None))


def books(p: Picture) -> tuple[EvidenceItem, ...]:
    """The figures of the message as statements, most telling first."""
    out = []
    where = "the limit" if p.capped else "the card"
    if p.request is not None and p.limit is not None:
        out.append(
            item(
                f"The request takes {size(p.request)}, {percent(p.share(p.request))} of {where} of {size(p.limit)}",
                request=p.request,
                limit=p.limit,
            )
        )
    if p.live is not None and p.limit:
        out.append(item(f"Tensors hold {size(p.live)}, {percent(p.share(p.live))} of {where}", allocated=p.live))
    if p.idle is not None:
        out.append(
            item(
                f"The allocator keeps {size(p.idle)} idle, {percent(p.idle_ratio)} of what it reserved",
                idle=p.idle,
                reserved=p.reserved,
            )
        )
    if p.outside is not None and p.event.backend != "mps":
        text = f"{size(p.outside)} of the card lie outside this allocator"
        others, own = (p.others, p.non_pytorch) if p.told_apart else (None, None)
        parts = [f"{size(part)} of them in {whose}" for part, whose in ((others, OTHERS), (own, THIS)) if part]
        text += "".join(f", {part}" for part in parts)
        out.append(item(text, outside=p.outside, non_pytorch=own, other_processes=others))
    elif p.outside is not None:
        out.append(item(f"{size(p.outside)} are held outside torch's allocator", outside=p.outside))
    if p.free is not None:
        out.append(item(f"{size(p.free)} are free on the device", free=p.free))
    if p.table is not None and p.table.turnover is not None:
        out.append(
            item(
                f"All allocations together are {p.table.turnover:.1f} times the peak",
                turnover_ratio=round(p.table.turnover, 3),
                peak=p.table.peak,
            )
        )
    return tuple(out)
