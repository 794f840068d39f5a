"""Values of the settings grammar: what is in effect, and remarks on a string."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 1 << 20
ROUNDUP_SLOTS: Final = 16


@dataclass(frozen=True, slots=True)
class AllocConf:
    """Effective settings of the caching allocator; the defaults are torch's.

    Attributes:
        expandable_segments: Grow one virtual range per stream and pool instead of separate segments.
        max_split_size: Bytes; blocks of this size or more are never split. None is unlimited.
        max_non_split_rounding: Bytes that an oversize block may be larger than its request.
        roundup_power2_divisions: Divisions for sizes of 1, 2, 4 ... 32768 MiB; 0 and 1 mean no rounding.
        roundup_bypass_threshold: Bytes above which torch 1.13 to 2.0 skips that rounding. None is unlimited.
        garbage_collection_threshold: Share of the allowed memory above which old blocks are freed; 0 is off.
        large_segment_size: Bytes of the segments for requests of 1 to 10 MiB (an option from torch 2.11).
        per_process_memory_fraction: Fraction of the card (an option from torch 2.10); None when not given.
        throw_on_cudamalloc_oom: Reject at the fraction limit without the retry chain (torch 2.12+).
        backend: "native" or "cudaMallocAsync".
        others: Remaining accepted options as (key, value text), in the order given.
    """

    expandable_segments: bool = False
    max_split_size: int | None = None
    max_non_split_rounding: int = 20 * MIB
    roundup_power2_divisions: tuple[int, ...] = (0,) * ROUNDUP_SLOTS
    roundup_bypass_threshold: int | None = None
    garbage_collection_threshold: float = 0.0
    large_segment_size: int = 20 * MIB
    per_process_memory_fraction: float | None = None
    throw_on_cudamalloc_oom: bool = False
    backend: str = "native"
    others: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ConfIssue:
    """A remark on a settings string.

    Attributes:
        severity: error (torch would raise or ignore it), warning or note.
        key: Option it is about, "" for the whole.
        message: One sentence.
    """

    severity: str
    key: str
    message: str


@dataclass(frozen=True, slots=True)
class ParsedConf:
    """A settings string as one torch version understands it.

    Attributes:
        conf: What would be in effect. Where torch would raise, the entries that are legal on their own.
        issues: Remarks, in the order of the string.
        accepted: False when this torch raises on the string, so that the program would not start with it.
        raises: Part of torch's own message then, so that a user can match the two.
    """

    conf: AllocConf
    issues: tuple[ConfIssue, ...]
    accepted: bool = True
    raises: str = ""
