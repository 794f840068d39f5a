"""A settings string that does what was meant: right separators, spelling and units, nothing inert or contradictory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Final

from oomctl.model.alloc_conf.errors import ConfError
from oomctl.model.alloc_conf.grammar import read
from oomctl.model.alloc_conf.options import BY_KEY, OPTIONS
from oomctl.model.alloc_conf.pieces import Piece
from oomctl.model.common import Version

_UNIT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_MIB: Final = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}
_BOOLEANS: Final = {"true": "True", "1": "True", "yes": "True", "on": "True"} | {
    "false": "False",
    "0": "False",
    "no": "False",
    "off": "False",
}


def corrected(pieces: Sequence[Piece], torch: Version, backend: str) -> str:
    """The corrected string; "" is the defaults.

    Args:
        pieces: The entries as they were meant.
        torch: (major, minor).
        backend: cuda, hip, xpu or npu.
    """
    kept: dict[str, str] = {}
    for piece in pieces:
        key = _key(piece.key, torch)
        if key is None:
            continue
        value = _value(key, piece.value, torch)
        if _legal(f"{key}:{value}", torch, backend):
            kept.pop(key, None)  # the last one counts
            kept[key] = value
    _drop_pointless(kept, torch)
    text = ",".join(f"{key}:{value}" for key, value in kept.items())
    if not _legal(text, torch, backend):  # a size below large_segment_size_mb: legal alone, not together
        kept.pop("large_segment_size_mb", None)
        text = ",".join(f"{key}:{value}" for key, value in kept.items())
    return text


def _legal(text: str, torch: Version, backend: str) -> bool:
    try:
        read(text, torch, backend)
    except ConfError:
        return False
    return True


def _key(key: str, torch: Version) -> str | None:
    if key in BY_KEY:
        return key if BY_KEY[key].known(torch) else None
    keys = [option.key for option in OPTIONS if option.known(torch)]
    near = get_close_matches(key.lower().replace("-", "_"), keys, 1, 0.7)
    return near[0] if near else None


def _value(key: str, value: str, torch: Version) -> str:
    value = value.strip("\"'")
    wants = BY_KEY[key].value
    if wants.startswith("True or False"):
        return _BOOLEANS.get(value.lower(), value)
    if wants.startswith("whole number of MiB"):
        match = _UNIT.fullmatch(value)
        return str(round(float(match[1]) * _MIB[match[2].upper()])) if match else value
    if wants.startswith("number") and value.endswith("%") and value[:-1].replace(".", "", 1).isdigit():
        return f"{float(value[:-1]) / 100:g}"
    if key == "roundup_power2_divisions" and torch < (2, 10):
        return _rest_of_list(value)
    return value


def _rest_of_list(value: str) -> str:
    """Up to 2.9 '>' overwrites the size listed before it; listing the next size first keeps that one."""
    match = re.fullmatch(r"(\[.*?)([0-9]+):([0-9]+),>:([0-9]+)\]", value)
    if match is None or match[3] == match[4] or int(match[2]) >= 1 << 15:
        return value
    return f"{match[1]}{match[2]}:{match[3]},{int(match[2]) * 2}:{match[4]},>:{match[4]}]"


def _drop_pointless(kept: dict[str, str], torch: Version) -> None:
    """Takes out what is without effect or does harm beside another option."""
    fraction = kept.get("per_process_memory_fraction")
    capped = fraction is not None and _below_one(fraction)
    if kept.get("backend", "native") != "native":
        for key in list(kept):
            if BY_KEY[key].native and key != "per_process_memory_fraction":
                del kept[key]
    if kept.get("expandable_segments") == "True":
        kept.pop("max_split_size_mb", None)
        kept.pop("garbage_collection_threshold", None)
    if not capped:
        kept.pop("garbage_collection_threshold", None)
        kept.pop("throw_on_cudamalloc_oom", None)
    if "max_split_size_mb" not in kept:
        kept.pop("max_non_split_rounding_mb", None)
    registers = "True" in (kept.get("pinned_use_cuda_host_register"), kept.get("pinned_use_hip_host_register"))
    if not registers:
        kept.pop("pinned_num_register_threads", None)
    divisions = kept.get("roundup_power2_divisions", "")
    if divisions and not any(d > 1 for d in read(f"roundup_power2_divisions:{divisions}", torch).roundup):
        del kept["roundup_power2_divisions"]


def _below_one(text: str) -> bool:
    match = re.match(r"[0-9]*\.?[0-9]+", text)
    return match is not None and float(match[0]) < 1
