"""A settings string that does what was meant: right separators, spelling and units, nothing inert or contradictory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from oomctl.model.alloc_conf.errors import ConfError
from oomctl.model.alloc_conf.grammar import read
from oomctl.model.alloc_conf.numbers import to_double
from oomctl.model.alloc_conf.options import BY_KEY, nearest
from oomctl.model.alloc_conf.parse import roundup_text
from oomctl.model.alloc_conf.pieces import Piece
from oomctl.model.common import Version

_UNIT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_MIB: Final = {"": 1.0, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0 * 1024}
_DECIMAL: Final = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
_UNLIMITED: Final = 1 << 30
"""MiB; a max_split_size_mb beyond any card's memory."""

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
        if value and _legal(f"{key}:{value}", torch, backend):
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
    return nearest(key, torch)


def _value(key: str, value: str, torch: Version) -> str:
    value = value.strip("\"'")
    wants = BY_KEY[key].value
    if wants.startswith("True or False"):
        return _BOOLEANS.get(value.lower(), "")
    if wants.startswith("whole number of MiB"):
        return _whole(value)
    if wants.startswith("number"):
        return _share(value)
    if key == "roundup_power2_divisions":
        value = value[: value.index("]") + 1] if value.startswith("[") and "]" in value else value.strip("[],")
        return _rest_of_list(value, torch) if torch < (2, 10) else value
    return value if value.startswith("[") or not any(char in value for char in ",:[]") else ""


def _whole(value: str) -> str:
    """A size in MiB without its unit; "" where there is none or it is so large that it means no limit."""
    match = _UNIT.fullmatch(value) or _UNIT.match(value.lstrip("+"))
    if match is None:
        return ""
    size = round(float(match[1][:18]) * _MIB[match[2].upper()])
    return str(size) if size < _UNLIMITED else ""


def _share(value: str) -> str:
    """A plain decimal number; a percentage is divided by 100."""
    try:
        share = to_double(value) / (100 if value.endswith("%") else 1)
    except ConfError:
        return ""
    if _DECIMAL.fullmatch(value):
        return value
    return f"{share:.6f}".rstrip("0").rstrip(".")


def _rest_of_list(value: str, torch: Version) -> str:
    """Up to 2.9 '>' overwrites the size listed before it; a list that keeps that one in every version."""
    text = f"roundup_power2_divisions:{value}"
    if ">" not in value or not value.startswith("[") or value.startswith("[>"):
        return value
    if not (_legal(text, torch, "cuda") and _legal(text, (2, 10), "cuda")):
        return value
    meant = read(text, (2, 10)).roundup
    if read(text, torch).roundup == meant:
        return value
    match = re.fullmatch(r"(\[.*?)([0-9]+):([0-9]+),>:([0-9]+)\]", value)
    if match is not None:  # listing the next size before '>' is enough
        short = f"{match[1]}{match[2]}:{match[3]},{int(match[2]) * 2}:{match[4]},>:{match[4]}]"
        text = f"roundup_power2_divisions:{short}"
        if ">" not in match[1] and _legal(text, torch, "cuda") and read(text, torch).roundup == meant:
            return short
    return roundup_text(tuple(divisions or 1 for divisions in meant))  # 1 is no rounding too, and legal everywhere


def _drop_pointless(kept: dict[str, str], torch: Version) -> None:
    """Takes out what is without effect or does harm beside another option."""
    if kept.get("per_process_memory_fraction", "1").strip("0.") == "":
        del kept["per_process_memory_fraction"]  # 0 lets no request through; what was meant cannot be told
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
    rounded, cached = kept.get("pinned_max_round_threshold_mb"), kept.get("pinned_max_cached_size_mb")
    if rounded and cached and int(rounded) > int(cached):
        del kept["pinned_max_round_threshold_mb"]
    divisions = kept.get("roundup_power2_divisions", "")
    if divisions and not any(d > 1 for d in read(f"roundup_power2_divisions:{divisions}", torch).roundup):
        del kept["roundup_power2_divisions"]


def _below_one(text: str) -> bool:
    match = re.match(r"[0-9]*\.?[0-9]+", text)
    return match is not None and float(match[0]) < 1
