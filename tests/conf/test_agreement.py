"""Our grammar against torch's own parser: acceptance and every value in effect."""

from __future__ import annotations

import pytest

from oomctl.model.alloc_conf.errors import ConfError
from oomctl.model.alloc_conf.grammar import Reader
from oomctl.model.alloc_conf.numbers import to_uint64
from tests.conf import real_parser
from tests.conf.strings import generate

COUNT = 8000
MIB = 1 << 20


def ours(text: str) -> real_parser.Effective | str:
    """The same by our grammar; a part of torch's message where it should raise."""
    try:
        values = Reader(text, (2, 13), every_key=True).read()
    except ConfError as error:
        return error.says
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


def test_same_acceptance_values_and_message() -> None:
    if not real_parser.available():
        pytest.skip("needs the CPU build of torch 2.13 on 64-bit Linux")
    wrong, accepted = [], 0
    for text in generate(20, COUNT):
        torch_says = real_parser.ask(text)
        accepted += not isinstance(torch_says, str)
        answer = ours(text)
        if isinstance(torch_says, str) and isinstance(answer, str):
            same = bool(answer) and answer in torch_says
        else:
            same = answer == torch_says
        if not same:
            wrong.append((text, torch_says, answer))
    assert wrong == []
    assert COUNT // 4 < accepted < COUNT * 3 // 4  # both sides are well covered
