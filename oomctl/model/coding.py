"""Values of a long column as small numbers, without sorting the column."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_WIDEST: Final = 1 << 22
"""Span of integers that a table is made for."""
_FEW: Final = 16
"""Distinct values that are looked for one by one."""


def coded(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int32]]:
    """The distinct values, ascending, and which of them each value is; `np.unique` with the inverse, only sooner.

    Args:
        values: Integers of any kind, [n].

    Returns:
        Distinct values; int32[n], indices into them.
    """
    n = len(values)
    if not n:
        return values[:0], np.zeros(0, np.int32)
    low, high = values.min(), values.max()
    span = int(high) - int(low)
    if span == 0:
        return values[:1].copy(), np.zeros(n, np.int32)
    if span < _WIDEST:
        offset = (values - low).astype(np.int32)
        there = np.zeros(span + 1, np.bool_)
        there[offset] = True
        distinct = np.flatnonzero(there)
        number = np.cumsum(there, dtype=np.int32) - np.int32(1)
        return low + distinct.astype(values.dtype), number[offset]
    found: list[Any] = []
    rest = values
    while len(rest) and len(found) < _FEW:
        found.append(rest[0])
        rest = rest[rest != rest[0]]
    if len(rest):
        distinct, inverse = np.unique(values, return_inverse=True)
        return distinct, inverse.reshape(-1).astype(np.int32)
    distinct = np.sort(np.array(found, values.dtype))
    codes = np.zeros(n, np.int32)
    for code, value in enumerate(distinct[1:], 1):
        codes[values == value] = code
    return distinct, codes


def grouped(codes: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """Rows by code, within a code as they come; int64[n].

    Args:
        codes: int32[n], 0 to count - 1.
        count: How many codes there are.
    """
    narrow = codes.astype(np.uint16) if count <= 1 << 16 else codes  # numpy sorts 16 bits by counting
    return np.argsort(narrow, kind="stable")
