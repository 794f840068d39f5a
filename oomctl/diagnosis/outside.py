"""Who holds the card's memory outside PyTorch's allocator, in the figures of the books and in words that fit them."""

from __future__ import annotations

from typing import Final

UNKNOWN: Final = "other processes, or this one outside PyTorch's allocator, hold"
UNNAMED: Final = "processes that the message does not name hold"


def holders(others: int | None, own: int | None, outside: int, subtype: str | None = None) -> tuple[str, int]:
    """Who holds how much, as a row of the books has it.

    Args:
        others: Bytes of other processes, or None where they are not told apart from this one's.
        own: Bytes of this process outside the allocator, or None likewise.
        outside: Bytes of the card outside the allocator, whoever holds them.
        subtype: Of the verdict: "other_processes", "non_pytorch", or None for whoever holds most.

    Returns:
        Subject and verb, to be followed by the size; the bytes.
    """
    if others is None or own is None:
        return UNKNOWN, outside
    parts = {
        "other_processes": ("other processes hold", others),
        "non_pytorch": ("outside PyTorch's allocator this process holds", own),
        "": (UNNAMED, max(outside - others - own, 0)),
    }
    if subtype in parts and parts[subtype][1]:
        return parts[subtype]
    return max(parts.values(), key=lambda part: part[1])
