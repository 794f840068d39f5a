"""What the diagnosis hands on: a report without remedies, and what choosing and proving some needs."""

from __future__ import annotations

from dataclasses import dataclass

from oomctl.model.common import VersionRange
from oomctl.model.report import Report
from oomctl.model.snapshot import Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class ReplayInput:
    """A trace that can be replayed.

    Attributes:
        snapshot: The file.
        device: Device ordinal.
        until: Trace index of the fatal oom event, or None.
        limit: Bytes of reserved memory that the allocator could not exceed, or None.
        limit_low: Lower bound of the limit where only a bracket is known.
        limit_high: Upper bound of it.
        device_total: The card's bytes, or None.
        torch: Versions that agree with all inputs.
    """

    snapshot: Snapshot
    device: int
    until: int | None
    limit: int | None
    limit_low: int | None
    limit_high: int | None
    device_total: int | None
    torch: VersionRange


@dataclass(frozen=True, slots=True)
class Facts:
    """What the choice of a remedy depends on beyond the verdict.

    Attributes:
        backend: cuda, hip, xpu, mps, npu or host.
        torch: Versions that agree with all inputs.
        conf: Settings string in force; "" is the defaults, None is unknown.
        phase: What the request was part of: load, forward, backward, optimizer, evaluation, saving or unknown.
        operation: Name of the function that asked (a library's, such as "cross_entropy"), or "".
        site: "file.py:28 function" of the user frame to change, or None.
        functions: Names of the functions in the failing stack and the first culprits' stacks, innermost first.
        hint: Other words that text gave (framework names, slugs).
    """

    backend: str = "cuda"
    torch: VersionRange = VersionRange()
    conf: str | None = None
    phase: str = "unknown"
    operation: str = ""
    site: str | None = None
    functions: tuple[str, ...] = ()
    hint: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Conclusion:
    """A report on one device, still without remedies."""

    report: Report
    facts: Facts
    replay: ReplayInput | None = None
