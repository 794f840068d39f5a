"""The only place where bytes become text and text becomes bytes.

torch prints binary units: a "GiB" and, before 2.0, a "GB" are both 1024 to the third power.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

KIB: Final = 1 << 10
MIB: Final = 1 << 20
GIB: Final = 1 << 30

_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_DIGITS: Final = 40
"""Characters of a number that is believed to be a size; arithmetic on a million of them takes forever."""
_SIZE: Final = re.compile(r"\s*([0-9]+(?:[.,][0-9]+)?)\s*(?:([KMGTPE])?i?B?|bytes?)\s*", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Bytes of a printed size such as ``"20.00 MiB"``, ``"24GB"``, ``"512 bytes"`` or ``"1024"``.

    The printed decimal times a power of 1024, rounded half to even.

    Args:
        text: A non-negative decimal with an optional unit; decimal and binary spellings mean the same.

    Returns:
        Bytes.

    Raises:
        ValueError: The text is no size.
    """
    match = _SIZE.fullmatch(text)
    if match is None or len(match[1]) > _DIGITS:
        raise ValueError(f"not a size: {text[:_DIGITS]!r}")
    number = Decimal(match[1].replace(",", "."))
    scaled = number * (1024 ** _POWERS[(match[2] or "").upper()])
    return int(scaled.to_integral_value(ROUND_HALF_EVEN))


def read_size(text: str) -> int | None:
    """`parse_size` for text that may be anything, such as digits of another script: None where it is no size."""
    try:
        return parse_size(text)
    except ValueError:
        return None


def format_size(size: int) -> str:
    """A size for people: ``"512 B"``, ``"1.50 KiB"``, ``"20.00 MiB"``, ``"1.00 GiB"``, ``"33.53 TiB"``.

    Args:
        size: Bytes; may be negative (a difference).
    """
    sign, rest = ("-", -size) if size < 0 else ("", size)
    if rest < KIB:
        return f"{sign}{rest} B"
    value = float(rest)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        if value < 1023.995 or unit == "PiB":
            return f"{sign}{value:.2f} {unit}"
    raise AssertionError("unreachable")


def half_digit(size: int) -> int:
    """Bytes by which a size that was printed with two decimals may differ from the true one.

    Args:
        size: Bytes of the printed figure; units change at exact powers of 1024 as in torch's `format_size`.
    """
    unit = GIB if size > GIB else MIB if size > MIB else KIB if size > KIB else 1
    return -(-unit // 200) if unit > 1 else 0
