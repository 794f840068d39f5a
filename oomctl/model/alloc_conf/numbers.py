"""Numbers in settings as the C++ standard library reads them: by prefix, so that "128MB" is 128."""

from __future__ import annotations

import re
from typing import Final

from oomctl.model.alloc_conf.errors import ConfError

_INT: Final = re.compile(r"[ \t\n\v\f\r]*([+-]?)([0-9]+)")
_FLOAT: Final = re.compile(
    r"""[ \t\n\v\f\r]*(?P<sign>[+-]?)
    (?:(?P<hex>0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?)
      |(?P<dec>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)
      |(?P<inf>inf(?:inity)?)
      |(?P<nan>nan))""",
    re.IGNORECASE | re.VERBOSE,
)
_SMALLEST_NORMAL: Final = 2.2250738585072014e-308


def to_uint64(text: str, function: str = "stoull") -> int:
    """Reads like ``std::stoull`` (torch 2.10+): a prefix of digits; a minus sign wraps around 2^64.

    Args:
        text: The token.
        function: Name of the C++ function, which is all that torch's message says.

    Raises:
        ConfError: No digits, or too large.
    """
    match = _INT.match(text)
    if match is None:
        raise ConfError("", f"{shown(text)} is not a whole number", function)
    # Bounded: Python refuses to convert thousands of digits, and 2^64 has twenty.
    digits = match[2].lstrip("0") or "0"
    if len(digits) > 20 or int(digits) >= 1 << 64:
        raise ConfError("", f"{shown(text)} does not fit into 64 bits", function)
    value = int(digits)
    return (-value) % (1 << 64) if match[1] == "-" else value


def to_int32(text: str) -> int:
    """Reads like ``std::stoi`` stored in a ``size_t`` (torch up to 2.9): 32 bits; negatives become huge.

    Raises:
        ConfError: No digits, or out of the range of 32 bits.
    """
    match = _INT.match(text)
    if match is None:
        raise ConfError("", f"{shown(text)} is not a whole number", "stoi")
    digits = match[2].lstrip("0") or "0"
    value = -int(digits[:20]) if match[1] == "-" else int(digits[:20])
    if len(digits) > 20 or not -(1 << 31) <= value < 1 << 31:
        raise ConfError("", f"{shown(text)} does not fit into 32 bits", "stoi")
    return value % (1 << 64)


def to_double(text: str) -> float:
    """Reads like ``std::stod``: a prefix that is a decimal or hexadecimal number, "inf" or "nan".

    Raises:
        ConfError: No number, or out of the range of a double.
    """
    match = _FLOAT.match(text)
    if match is None:
        raise ConfError("", f"{shown(text)} is not a number", "stod")
    sign = -1.0 if match["sign"] == "-" else 1.0
    if match["inf"]:
        return sign * float("inf")
    if match["nan"]:
        return float("nan")
    body = match["hex"] or match["dec"]
    try:
        value = float.fromhex(body) if match["hex"] else float(body)
    except OverflowError:
        value = float("inf")
    digits = re.split("[ep]" if match["dec"] else "p", body.lower().removeprefix("0x"))[0]
    if value == float("inf") or (value < _SMALLEST_NORMAL and digits.strip("0.")):
        raise ConfError("", f"{shown(text)} is out of range", "stod")
    return sign * value


def is_power_of_two(value: int) -> bool:
    """Whether a positive value is a power of two (0 is not)."""
    return value > 0 and value & (value - 1) == 0


def shown(text: str) -> str:
    """A piece of the string for a message: quoted, without control characters, at most 40 characters."""
    clean = "".join(c if c.isprintable() else "?" for c in text)
    return f"'{clean[:37]}...'" if len(clean) > 40 else f"'{clean}'"
