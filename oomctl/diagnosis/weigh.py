"""Weighing: which single absence would have let the request succeed, and how much it would have freed."""

from __future__ import annotations

from typing import Final

from oomctl.diagnosis.base import Finding
from oomctl.diagnosis.codes import code_for
from oomctl.model.report import Contribution, Verdict
from oomctl.units import format_size

CLEAR: Final = 2.0
"""The first share is clearly ahead when it is this many times the second."""

NO_CARD: Final = "no input gives the card's size or its other tenants"
"""Weakness of a snapshot alone on a card that was full."""

NO_EVENTS: Final = "the events before the failure are missing"
"""Weakness of segments alone: that there was room says nothing of how the program came to this point."""


def weigh(findings: list[Finding], weaknesses: list[str]) -> Verdict:
    """The verdict from the detectors' findings.

    Memory taken from outside explains a failure whatever the program does with the rest, so a decisive external
    finding comes first. A request larger than the card is next. Then fragmentation and leaks by their share: without
    them the same peak would have fitted. A peak is blamed where neither explains the failure, and what fills the card
    for good (capacity) only where nothing is abnormal.

    Args:
        findings: One a detector at most.
        weaknesses: What is missing from the evidence; each lowers the confidence.
    """
    decisive = [f for f in findings if f.decisive]

    def order(f: Finding) -> tuple[int, int]:
        if f.cls == "external":
            return (0, -f.share)
        if f.subtype == "impossible_request":
            return (1, -f.share)
        if f.cls in ("fragmentation", "leak"):
            return (2, -f.share)
        return (4 if f.cls == "capacity" else 3, -f.share)

    decisive.sort(key=order)
    if not decisive:
        return _undecided(findings)
    first = decisive[0]
    if first.subtype == "first_step" and NO_CARD in weaknesses:
        # Nothing in the program is out of the ordinary, and whether the card was its own is unknown.
        return _undecided(findings)
    rest = [f for f in findings if f is not first and f.share > 0 and f.cls not in ("capacity",)]
    rivals = [f for f in decisive[1:] if order(f)[0] == order(first)[0]]
    strength = first.strength
    if rivals and rivals[0].share * CLEAR > first.share:
        strength -= 0.2
    if any(f.possible and not f.decisive for f in findings):
        strength -= 0.2
    if first.cls == "external":  # others' memory is the message's to tell
        weaknesses = [w for w in weaknesses if w != NO_EVENTS]
    strength -= sum(0.2 if w in (NO_CARD, NO_EVENTS) else 0.1 for w in weaknesses)
    confidence = "high" if strength >= 0.75 else "medium" if strength >= 0.45 else "low"
    return Verdict(
        cls=first.cls,
        subtype=first.subtype,
        code=code_for(first.cls, first.subtype),
        confidence=confidence,
        headline=first.headline,
        evidence=first.evidence,
        contributing=_contributing(rest),
    )


def _contributing(findings: list[Finding]) -> tuple[Contribution, ...]:
    ordered = sorted(findings, key=lambda f: -f.share)
    return tuple(Contribution(f.cls, f.share, f.headline) for f in ordered)


def _undecided(findings: list[Finding]) -> Verdict:
    """Nothing is decisive: the largest findings are shown, none is claimed."""
    ordered = sorted(findings, key=lambda f: -f.share)
    if ordered:
        named = " and ".join(f"{f.cls.replace('_', ' ')} ({format_size(f.share)})" for f in ordered[:2])
        headline = f"no single cause is proved: {named} {'are' if len(ordered) > 1 else 'is'} left"
    else:
        headline = "the evidence does not show a cause"
    return Verdict("uncertain", None, code_for("uncertain"), "low", headline, (), _contributing(ordered))
