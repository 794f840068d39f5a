"""Which torch prints which wording (allocator messages by release)."""

from __future__ import annotations

import re
from typing import Final

from oomctl.model.common import VersionRange

CACHED: Final = VersionRange(None, (1, 3))
RESERVED_PLAIN: Final = VersionRange((1, 4), (1, 9))
RESERVED_HINT: Final = VersionRange((1, 10), (2, 0))
RESERVED: Final = VersionRange((1, 4), (2, 0))
CAPACTY: Final = VersionRange((2, 1), (2, 1))
NEW: Final = VersionRange((2, 1), None)
FROM_22: Final = VersionRange((2, 2), None)

_EXPLICIT: Final = re.compile(
    r"(?:py)?torch(?:[ _-]?version)?\s*(?:==|[:=]|\s)\s*v?['\"]?(\d{1,2})\.(\d{1,2})(?:\.\d+)?(?:[.+ab,'\"\s]|rc|$)",
    re.I,
)


def of_message(squeezed: str) -> VersionRange:
    """Versions whose allocator prints this message.

    Args:
        squeezed: The message without white space, perhaps cut.
    """
    if "cached" in squeezed and re.search(r"(?<!\d)\d[\d.]{0,22}(?:bytes|[KMGT]i?B)cached", squeezed):
        return CACHED
    if "reservedintotal" in squeezed or "totalcapacity;" in squeezed:
        if "Ifreservedmemoryis" in squeezed:
            return RESERVED_HINT
        allowed = re.search(r"[KMGT]i?Ballowed;", squeezed) is not None
        return VersionRange((1, 8), (2, 0)) if allowed else RESERVED
    if "totalcapacty" in squeezed:
        return CAPACTY
    if "preemptivelyrejected" in squeezed:
        return VersionRange((2, 12), None)
    if "hasatotalcapacity" in squeezed:
        low, high = (2, 2), None
        if "allocatedinprivatepools" in squeezed:
            low = (2, 4)
        if "docs.pytorch.org" in squeezed:
            low = (2, 11)
        elif "PYTORCH_ALLOC_CONF=" in squeezed:
            return VersionRange((2, 10), (2, 10))
        elif "(https://pytorch.org" in squeezed:
            high = (2, 9)
        return VersionRange(low, high)
    return VersionRange()


def of_exception(name: str) -> VersionRange:
    """Versions that raise an out-of-memory error under this class name."""
    if name == "torch.cuda.OutOfMemoryError":
        return VersionRange((1, 13), (2, 3))
    if name == "torch.OutOfMemoryError":
        return VersionRange((2, 4), None)
    if name == "torch.AcceleratorError":
        return VersionRange((2, 8), None)
    return VersionRange()


def explicit(text: str) -> VersionRange | None:
    """A version that the text states, for example "torch==2.3.1" or "PyTorch version: 2.1.0+cu118"."""
    match = _EXPLICIT.search(text)
    if match is None:
        return None
    version = (int(match[1]), int(match[2]))
    if not (0, 3) <= version <= (3, 30):
        return None
    return VersionRange(version, version)
