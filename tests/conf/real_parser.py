"""The parser of the installed torch 2.13 (CPU build), asked for what it has in effect.

Only acceptance has a public way out (the setter raises); `_accelerator_getAllocatorSettings` gives back the string as
it was set, not the values. The values are therefore read from the one instance of the parser in `libc10`: roundup
divisions through its exported function, the rest at the offsets of the members in `c10/core/AllocatorConfig.h`.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from pathlib import Path
from typing import NamedTuple

_UNLIMITED = (1 << 64) - 1
_NAMESPACE = "_ZN3c1016CachingAllocator26AcceleratorAllocatorConfig"


class _Layout(ctypes.Structure):
    """Members in order, Itanium ABI on 64-bit Linux."""

    _fields_ = (
        ("large_segment_size", ctypes.c_uint64),
        ("max_split_size", ctypes.c_uint64),
        ("max_non_split_rounding", ctypes.c_uint64),
        ("roundup", ctypes.c_void_p * 3),
        ("gc", ctypes.c_double),
        ("expandable", ctypes.c_bool),
        ("pinned_background", ctypes.c_bool),
        ("pinned_max_round", ctypes.c_uint64),
        ("pinned_max_cached", ctypes.c_uint64),
    )


class Effective(NamedTuple):
    """What the shared parser has in effect; sizes in bytes, None is unlimited."""

    expandable_segments: bool
    max_split_size: int | None
    max_non_split_rounding: int
    roundup: tuple[int, ...]
    gc: float
    large_segment_size: int
    pinned_background: bool
    pinned_max_round: int | None
    pinned_max_cached: int | None


@functools.cache
def _library() -> ctypes.CDLL:
    import torch

    return ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))


def available() -> bool:
    """Whether this is the torch whose layout is known: 2.13, CPU build, 64-bit Linux."""
    import torch

    return (
        torch.__version__.startswith("2.13.")
        and torch.version.cuda is None
        and getattr(torch.version, "hip", None) is None
        and sys.platform == "linux"
        and platform.machine() in ("x86_64", "aarch64")
    )


def _instance() -> _Layout:
    function = getattr(_library(), _NAMESPACE + "8instanceEv")
    function.restype = ctypes.c_void_p
    return _Layout.from_address(function())


def _reset() -> None:
    """A fresh process: the setter itself keeps several options from one call to the next."""
    members = _instance()
    members.large_segment_size = 20 << 20
    members.expandable = members.pinned_background = False
    members.pinned_max_round = members.pinned_max_cached = _UNLIMITED


def ask(text: str) -> Effective | str:
    """What torch has in effect after the string, or the first line of what it raises."""
    import torch

    _reset()
    try:
        torch._C._accelerator_setAllocatorSettings(text)
    except (RuntimeError, ValueError, IndexError) as error:
        return str(error).splitlines()[0] if str(error) else type(error).__name__
    members = _instance()
    divisions = getattr(_library(), _NAMESPACE + "24roundup_power2_divisionsEm")
    divisions.argtypes, divisions.restype = [ctypes.c_uint64], ctypes.c_uint64
    return Effective(
        members.expandable,
        _limit(members.max_split_size),
        members.max_non_split_rounding,
        tuple(divisions(1 << (20 + slot)) for slot in range(16)),
        members.gc,
        members.large_segment_size,
        members.pinned_background,
        _limit(members.pinned_max_round),
        _limit(members.pinned_max_cached),
    )


def _limit(size: int) -> int | None:
    return None if size == _UNLIMITED else size
