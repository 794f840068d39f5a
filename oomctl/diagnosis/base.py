"""The contract of a detector: facts in, a finding out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from oomctl.analysis.incident import Incident
from oomctl.model.report import EvidenceItem, WhatIf


@dataclass(frozen=True, slots=True)
class Finding:
    """What one detector says.

    Attributes:
        cls: Class slug.
        subtype: Or None.
        share: Bytes that the absence of this cause would free.
        decisive: Without this cause alone the request would have fitted, and the cause is abnormal.
        strength: 0 to 1, how well the evidence carries it.
        headline: One sentence with the numbers in it.
        evidence: Statements with numbers, strongest first.
        possible: It may yet be the cause: something that is not in the inputs would decide.
    """

    cls: str
    subtype: str | None
    share: int
    decisive: bool
    strength: float
    headline: str
    evidence: tuple[EvidenceItem, ...] = ()
    possible: bool = False


class Detector(Protocol):
    """One class of failure."""

    @property
    def cls(self) -> str:
        """Class slug."""

    def judge(self, incident: Incident, replayed: WhatIf | None = None) -> Finding | None:
        """What this class's absence would have changed; None when it had no part.

        Args:
            incident: The facts.
            replayed: The trace replayed under other settings, where that could be done.
        """
