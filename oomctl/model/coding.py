"""Values of a long column as small numbers, without sorting the column."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from oomctl.model.snapshot import Action

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


def paired(
    action: NDArray[np.uint8], address: NDArray[np.uint64], order: NDArray[np.int32], end: int
) -> tuple[NDArray[np.int32], NDArray[np.bool_]]:
    """Events of blocks paired into lives: a life begins at an alloc and at the first sight of an address.

    Args:
        action: uint8[n], values of `oomctl.model.snapshot.Action`.
        address: uint64[n].
        order: int32[m], rows of the events of blocks by address and time.
        end: An action behind which a life begins too, -1 for none.

    Returns:
        int32[4, lives], by address and time: the rows of a life's first event (an alloc, if it has one), its first
        free_requested and its last one, and its first free_completed, -1 where there is none; bool[lives], whether
        the life before it is of the same address.
    """
    kinds, where = action[order], address[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = where[1:] != where[:-1]
    follows = ~begins
    begins |= kinds == Action.ALLOC
    begins[1:] |= kinds[:-1] == end
    starts = np.flatnonzero(begins)
    life = np.cumsum(begins, dtype=np.int32)
    life -= 1
    made = np.full((4, len(starts)), -1, np.int32)
    made[0] = order[starts]
    for kind, first in ((Action.FREE_REQUESTED, 1), (Action.FREE_COMPLETED, 3)):
        mine = kinds == kind
        made[first][life[mine][::-1]] = order[mine][::-1]  # back to front, so that the earliest stays
    mine = kinds == Action.FREE_REQUESTED
    made[2][life[mine]] = order[mine]
    return made, follows[starts]


def grouped(codes: NDArray[np.int32], count: int) -> NDArray[np.int64]:
    """Rows by code, within a code as they come; int64[n].

    Args:
        codes: int32[n], 0 to count - 1.
        count: How many codes there are.
    """
    narrow = codes.astype(np.uint16) if count <= 1 << 16 else codes  # numpy sorts 16 bits by counting
    return np.argsort(narrow, kind="stable")
