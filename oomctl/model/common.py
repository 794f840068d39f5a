"""Small values that every part of the model uses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that could not be told; shown in the report's limits.

    Attributes:
        what: The question left open, for example "growth per step".
        reason: Why.
        capture: What recording would tell it; empty when nothing would.
    """

    what: str
    reason: str
    capture: str = ""


Version = tuple[int, int]
"""torch's (major, minor)."""


def parse_version(text: str) -> Version:
    """(major, minor) of a printed version such as "2.9", "v2.9.1" or "2.13.0+cpu".

    Args:
        text: The version.

    Raises:
        ValueError: It is none.
    """
    parts = text.strip().removeprefix("v").split("+")[0].split(".")
    if len(parts) < 2 or not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts[:2]):
        raise ValueError(f"not a version: {text!r}")
    return int(parts[0]), int(parts[1])


@dataclass(frozen=True, slots=True)
class VersionRange:
    """Versions of torch that agree with the evidence, both ends inclusive; None means open."""

    low: Version | None = None
    high: Version | None = None

    def __and__(self, other: VersionRange) -> VersionRange:
        """The versions that agree with both; `other` alone where they contradict each other."""
        low = max((v for v in (self.low, other.low) if v is not None), default=None)
        high = min((v for v in (self.high, other.high) if v is not None), default=None)
        if low is not None and high is not None and low > high:
            return other
        return VersionRange(low, high)

    @property
    def known(self) -> bool:
        """Whether anything is known."""
        return self.low is not None or self.high is not None

    def __str__(self) -> str:
        low = "" if self.low is None else f"{self.low[0]}.{self.low[1]}"
        high = "" if self.high is None else f"{self.high[0]}.{self.high[1]}"
        if low == high:
            return low or "unknown"
        if not high:
            return f">={low}"
        if not low:
            return f"<={high}"
        return f"{low}-{high}"


@dataclass(frozen=True, slots=True)
class InputFile:
    """One input as given.

    Attributes:
        path: As the user typed it; "-" for stdin.
        kind: snapshot, memory_summary, oom_log, memory_stats, series, nvidia_smi, traceback, report or unknown.
        format: Container and encoding, for example "pickle protocol 4, gzip" or "text".
        torch: Versions that could have written it.
        sha256: Of the bytes as given, hexadecimal; None for a stream that was not kept.
        size: Bytes as given.
    """

    path: str
    kind: str
    format: str
    torch: VersionRange
    sha256: str | None
    size: int


NO_PYTHON: Final = "C++ code that no Python frame called"
"""Instead of the innermost frames of a stack without Python: they are torch's own stack walker."""


def without_number(mark: str) -> str:
    """What the marks of numbered steps have in common: the name without the number at its end."""
    stem = mark.rstrip("0123456789")
    return (stem.rstrip("#_ :") if len(stem) < len(mark) else mark) or mark


def shown_name(function: str) -> str:
    """A function's name for people: a C++ one without its arguments."""
    if function.startswith("torch::unwind"):
        return NO_PYTHON
    return (function.partition("(")[0] if "::" in function else "") or function
