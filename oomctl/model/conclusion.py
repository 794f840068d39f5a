"""What the diagnosis hands on: a report without remedies, and what choosing and proving some needs."""

from __future__ import annotations

from dataclasses import dataclass

from oomctl.model.alloc_conf import AllocConf
from oomctl.model.common import VersionRange
from oomctl.model.report import Report


@dataclass(frozen=True, slots=True)
class Facts:
    """What the choice of a remedy depends on beyond the verdict.

    Attributes:
        backend: cuda, hip, xpu, mps, npu or host.
        torch: Versions that agree with all inputs.
        conf: Settings string in force; "" is the defaults, None is unknown.
        effective: The settings in force as recorded, or None where only `conf` is known.
        phase: What the request was part of: load, forward, backward, optimizer, evaluation, saving or unknown.
        operation: Name of the function that asked (a library's, such as "cross_entropy"), or "".
        site: "file.py:28 function" of the user frame to change, or None.
        functions: Names of the functions in the failing stack and the first culprits' stacks, innermost first.
        hint: Other words that text gave (framework names, slugs).
    """

    backend: str = "cuda"
    torch: VersionRange = VersionRange()
    conf: str | None = None
    effective: AllocConf | None = None
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
