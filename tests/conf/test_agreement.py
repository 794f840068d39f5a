"""Our grammar against torch's own parser: acceptance and every value in effect."""

from __future__ import annotations

import pytest
import real_parser
from strings import generate

from oomctl.model.alloc_conf.errors import ConfError
from oomctl.model.alloc_conf.grammar import Reader
from oomctl.model.alloc_conf.numbers import to_uint64

COUNT = 8000
MIB = 1 << 20


def ours(text: str) -> real_parser.Effective | None:
    """The same by our grammar; None where torch should raise."""
    try:
        values = Reader(text, (2, 13), every_key=True).read()
    except ConfError:
        return None
    pinned = dict(values.others)

    def size(key: str) -> int | None:
        return min(to_uint64(pinned[key]), ((1 << 64) - 1) // MIB) * MIB if key in pinned else None

    return real_parser.Effective(
        values.expandable_segments,
        values.max_split_size,
        values.max_non_split_rounding,
        tuple(values.roundup),
        values.gc,
        values.large_segment_size,
        pinned.get("pinned_use_background_threads") == "True",
        size("pinned_max_round_threshold_mb"),
        size("pinned_max_cached_size_mb"),
    )


def test_same_acceptance_and_values() -> None:
    if not real_parser.available():
        pytest.skip("needs the CPU build of torch 2.13 on 64-bit Linux")
    wrong, accepted = [], 0
    for text in generate(20, COUNT):
        torch_says = real_parser.ask(text)
        accepted += not isinstance(torch_says, str)
        expected = None if isinstance(torch_says, str) else torch_says
        if ours(text) != expected:
            wrong.append((text, torch_says, ours(text)))
    assert wrong == []
    assert COUNT // 4 < accepted < COUNT * 3 // 4  # both sides are well covered
