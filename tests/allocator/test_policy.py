"""Rounding and segment sizes against the allocator's published figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomctl.allocator.policy import Policy, policy_of
from oomctl.model.alloc_conf import parse_conf

MIB = 1 << 20
DIVISIONS = (0, 2, 4, 8, 16)
ROUNDED = {
    1: (512, 512, 512, 512, 512),
    512: (512, 512, 512, 512, 512),
    513: (1024, 1024, 1024, 1024, 1024),
    1200: (1536, 1536, 1536, 1536, 1536),
    2049: (2560, 3072, 2560, 2560, 2560),
    5000: (5120, 6144, 5120, 5120, 5120),
    1048576: (1048576,) * 5,
    1048577: (1049088, 1572864, 1310720, 1179648, 1114112),
    1200000: (1200128, 1572864, 1310720, 1310720, 1245184),
    3 * MIB: (3145728,) * 5,
    514 * MIB: (538968064, 805306368, 671088640, 603979776, 570425344),
}


@pytest.mark.parametrize("request_size", ROUNDED)
def test_rounding(request_size: int) -> None:
    rounded = tuple(Policy(divisions=(d,) * 16).round_one(request_size) for d in DIVISIONS)
    assert rounded == ROUNDED[request_size]


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
        (1000 * MIB, 1000 * MIB),
    ],
)
def test_segments(size: int, segment: int) -> None:
    assert Policy().segment_size(size) == segment


@given(st.lists(st.integers(1, 1 << 36), min_size=1, max_size=20), st.sampled_from(DIVISIONS))
def test_rounding_only_adds_and_keeps_what_is_round(sizes: list[int], divisions: int) -> None:
    policy = Policy(divisions=(divisions,) * 16)
    rounded = policy.round(np.array(sizes, np.int64))
    assert all(r >= s and r % 512 == 0 for r, s in zip(rounded.tolist(), sizes, strict=True))
    assert policy.round(rounded).tolist() == rounded.tolist()


@given(st.integers(1, 1 << 36), st.sampled_from(DIVISIONS))
def test_the_least_request_of_a_block(size: int, divisions: int) -> None:
    policy = Policy(divisions=(divisions,) * 16)
    block = policy.round_one(size)
    least = policy.least_request(block)
    assert policy.round_one(least) == block
    assert least == 1 or policy.round_one(least - 1) < block


@pytest.mark.parametrize(
    ("conf", "torch", "backend", "field", "value"),
    [
        ("expandable_segments:True", (2, 1), "cuda", "expandable", True),
        ("max_split_size_mb:64", (2, 6), "cuda", "max_split", 64 * MIB),
        ("max_split_size_mb:64", (2, 11), "xpu", "max_split", Policy().max_split),
        ("large_segment_size_mb:40", (2, 11), "cuda", "large_segment", 40 * MIB),
        ("", (2, 12), "cuda", "reclaims_in_mempool", False),
        ("", (2, 13), "cuda", "reclaims_in_mempool", True),
        ("throw_on_cudamalloc_oom:True", (2, 12), "cuda", "rejects_early", True),
        ("", (2, 1), "npu", "padding", 32),
    ],
)
def test_versions(conf: str, torch: tuple[int, int], backend: str, field: str, value: object) -> None:
    assert getattr(policy_of(parse_conf(conf, torch).conf, torch, backend), field) == value
