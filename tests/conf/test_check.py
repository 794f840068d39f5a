"""The linter: which option is remarked upon, in which words, and what it proposes instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomctl.model.alloc_conf import OPTIONS, ROUNDUP_SLOTS, AllocConf, check_conf, format_conf, lint, parse_conf
from oomctl.model.alloc_conf.check import VERSIONS
from oomctl.model.common import VersionRange, parse_version
from tests.conf.strings import generate

CASES = json.loads((Path(__file__).parent / "cases.json").read_text("utf-8"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['torch']} {case['text']}")
def test_case(case: dict[str, Any]) -> None:
    check = check_conf(case["text"], parse_version(case["torch"]), case.get("platform", "linux"))
    keys = {severity: {i.key for i in check.issues if i.severity == severity} for severity in ("error", "warning")}
    assert keys["error"] == set(case.get("errors", []))
    if "warns" in case:
        assert keys["warning"] == set(case["warns"])
    messages = " | ".join(issue.message for issue in check.issues)
    for part in case.get("says", []):
        assert part in messages
    if "corrected" in case:
        assert check.corrected == case["corrected"]


@given(st.integers(0, 1 << 30), st.sampled_from(VERSIONS))
@settings(max_examples=60, deadline=None)
def test_correction_is_clean(seed: int, torch: tuple[int, int]) -> None:
    """What is proposed is accepted, has neither errors nor warnings, and is not corrected again."""
    for text in generate(seed, 20):
        proposed = check_conf(text, torch).corrected
        again = check_conf(proposed, torch)
        remarks = [issue for issue in again.issues if issue.severity != "note"]
        assert again.accepted, (text, proposed)
        assert remarks == [], text
        assert again.corrected == proposed


@given(st.text(max_size=200), st.sampled_from(VERSIONS))
@settings(max_examples=200, deadline=None)
def test_any_text_is_judged(text: str, torch: tuple[int, int]) -> None:
    check = check_conf(text, torch)
    assert check.accepted or any(issue.severity == "error" for issue in check.issues)
    assert check.accepted == parse_conf(text, torch).accepted


_DIVISIONS = st.sampled_from([0, 1, 2, 4, 8, 16])
_CONFS = st.builds(
    AllocConf,
    expandable_segments=st.booleans(),
    max_split_size=st.none() | st.integers(64, 1 << 20).map(lambda n: n << 20),
    max_non_split_rounding=st.integers(64, 1 << 12).map(lambda n: n << 20),
    roundup_power2_divisions=st.lists(_DIVISIONS, min_size=ROUNDUP_SLOTS, max_size=ROUNDUP_SLOTS).map(tuple)
    | _DIVISIONS.map(lambda d: (d,) * ROUNDUP_SLOTS),
    garbage_collection_threshold=st.just(0.0) | st.floats(0.001, 0.999),
    large_segment_size=st.sampled_from([20, 40]).map(lambda n: n << 20),
    per_process_memory_fraction=st.none() | st.floats(0, 1, allow_subnormal=False),
    throw_on_cudamalloc_oom=st.booleans(),
)


@given(_CONFS)
@settings(max_examples=300, deadline=None)
def test_format_reads_back(conf: AllocConf) -> None:
    parsed = parse_conf(format_conf(conf), (2, 13))
    assert parsed.accepted
    assert parsed.conf == conf


def test_range_says_where() -> None:
    found = lint("expandable_segments:True,max_split_size_mb:512", VersionRange((2, 4), (2, 6)))
    assert [(issue.severity, issue.message.rsplit("(", 1)[1]) for issue in found] == [
        ("warning", "torch 2.4)"),
        ("warning", "torch 2.5 to 2.6)"),
    ]
    assert lint("expandable_segments:True", VersionRange((2, 5), None)) == ()


def test_options_table_is_whole() -> None:
    keys = [option.key for option in OPTIONS]
    assert len(keys) == len(set(keys))
    for option in OPTIONS:
        for entry in option.example.split(",") if option.example else []:
            newest = min(option.until or (2, 14), (2, 14))
            assert check_conf(option.example, newest).accepted, entry
            assert not check_conf(option.example, newest).failed
