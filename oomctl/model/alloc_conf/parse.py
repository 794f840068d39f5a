"""Settings from text and from snapshots, and back to text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from oomctl.model.alloc_conf.errors import ConfError
from oomctl.model.alloc_conf.grammar import Values, read
from oomctl.model.alloc_conf.option import dotted
from oomctl.model.alloc_conf.types import MIB, ROUNDUP_SLOTS, AllocConf, ConfIssue, ParsedConf
from oomctl.model.common import Version

if TYPE_CHECKING:
    from oomctl.model.snapshot import AllocatorSettings


def entries(text: str) -> list[str]:
    """The entries of a string, split at commas outside brackets; empty ones are dropped."""
    found, depth, start = [], 0, 0
    for i, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth = max(depth - 1, 0)
        elif char == "," and depth == 0:
            found.append(text[start:i])
            start = i + 1
    found.append(text[start:])
    return [entry.strip() for entry in found if entry.strip()]


def parse_conf(text: str, torch: Version = (2, 11), backend: str = "cuda") -> ParsedConf:
    """Reads a settings string as a build of the given torch version would.

    Args:
        text: For example "expandable_segments:True,max_split_size_mb:128"; "" is the defaults.
        torch: (major, minor).
        backend: "cuda" or "hip", whose builds differ in one name.
    """
    try:
        return ParsedConf(read(text, torch, backend).frozen(), ())
    except ConfError as error:
        says = error.says
        raised = ConfIssue("error", error.key, f"torch {dotted(torch)} raises: {error.message}")
    return ParsedConf(_legal_entries(text, torch, backend), (raised,), accepted=False, raises=says)


def _legal_entries(text: str, torch: Version, backend: str) -> AllocConf:
    """What remains when every entry that torch would raise on is left out."""
    kept: list[str] = []
    values = Values()
    for entry in entries(text)[:64]:
        try:
            values = read(",".join([*kept, entry]), torch, backend)
        except ConfError:
            continue
        kept.append(entry)
    return values.frozen()


def format_conf(conf: AllocConf) -> str:
    """The shortest string that a current torch reads as these settings; "" for the defaults."""
    parts: list[str] = []
    if conf.backend != "native":
        parts.append(f"backend:{conf.backend}")
    if conf.expandable_segments:
        parts.append("expandable_segments:True")
    if conf.large_segment_size != 20 * MIB:
        parts.append(f"large_segment_size_mb:{conf.large_segment_size // MIB}")
    if conf.max_split_size is not None:
        parts.append(f"max_split_size_mb:{conf.max_split_size // MIB}")
    if conf.max_non_split_rounding not in (20 * MIB, conf.large_segment_size):
        parts.append(f"max_non_split_rounding_mb:{conf.max_non_split_rounding // MIB}")
    if any(conf.roundup_power2_divisions):
        parts.append(f"roundup_power2_divisions:{roundup_text(conf.roundup_power2_divisions)}")
    if conf.roundup_bypass_threshold is not None:
        parts.append(f"roundup_bypass_threshold_mb:{conf.roundup_bypass_threshold // MIB}")
    if conf.garbage_collection_threshold:
        parts.append(f"garbage_collection_threshold:{conf.garbage_collection_threshold!r}")
    if conf.per_process_memory_fraction is not None:
        parts.append(f"per_process_memory_fraction:{conf.per_process_memory_fraction!r}")
    if conf.throw_on_cudamalloc_oom:
        parts.append("throw_on_cudamalloc_oom:True")
    parts.extend(f"{key}:{value}" for key, value in conf.others)
    return ",".join(parts)


def roundup_text(slots: tuple[int, ...]) -> str:
    """A scalar where all slots agree, else a list in which every slot from the first change on is spelt out."""
    if len(set(slots)) == 1:
        return str(slots[0])
    first = next(i for i, divisions in enumerate(slots) if divisions != slots[0]) - 1
    # The first entry fills the slots below it; 0 is legal in a list. No ">": its meaning differs by version.
    return "[" + ",".join(f"{1 << i}:{slots[i]}" for i in range(first, ROUNDUP_SLOTS)) + "]"


def conf_from_recorded(settings: AllocatorSettings | None, torch: Version = (2, 11)) -> AllocConf:
    """Settings that were in effect when a snapshot was taken.

    The recorded values count before the recorded string: the string is only the one parsed last, and torch keeps some
    options from earlier calls. The string fills in what has no recorded value.

    Args:
        settings: `allocator_settings` of the snapshot; None (before torch 2.3) means the defaults.
        torch: (major, minor) that wrote it.
    """
    if settings is None:
        return AllocConf()
    conf = parse_conf(settings.conf or "", torch).conf
    values = settings.values
    expandable = values.get("expandable_segments")
    if isinstance(expandable, bool):
        conf = replace(conf, expandable_segments=expandable)
    split = values.get("max_split_size")
    if isinstance(split, int) and not isinstance(split, bool):
        # -1 is unlimited; the largest 64-bit value has been seen for it too.
        conf = replace(conf, max_split_size=split if 0 < split < (1 << 63) - 1 else None)
    gc = values.get("garbage_collection_threshold")
    if isinstance(gc, (int, float)) and not isinstance(gc, bool) and 0 <= gc < 1:
        conf = replace(conf, garbage_collection_threshold=float(gc))
    roundup = values.get("roundup_power2_divisions")
    if isinstance(roundup, Mapping) and roundup:
        conf = replace(conf, roundup_power2_divisions=_recorded_roundup(roundup, conf.roundup_power2_divisions))
    return conf


def _recorded_roundup(recorded: Mapping[object, object], fallback: tuple[int, ...]) -> tuple[int, ...]:
    """Slots from {"1": d, "2": d ... "32768": d}; a slot that is missing keeps the string's value."""
    slots = list(fallback)
    for i in range(ROUNDUP_SLOTS):
        value = recorded.get(str(1 << i), recorded.get(1 << i))
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            slots[i] = value
    return tuple(slots)
