"""Our grammar against what the parsers of released CUDA builds did; see fixtures/conf/README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomctl.model.alloc_conf import parse_conf
from oomctl.model.alloc_conf.differences import DIFFERENCES
from oomctl.model.common import parse_version

CASES: list[dict[str, Any]] = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "fixtures/conf/released_parsers.jsonl").read_text("utf-8").splitlines()
]


@pytest.mark.parametrize("release", sorted({case["release"] for case in CASES}))
def test_as_the_release_did(release: str) -> None:
    wrong = []
    for case in CASES:
        if case["release"] != release:
            continue
        parsed = parse_conf(case["text"], parse_version(release))
        if case["raises"] is not None:
            same = not parsed.accepted and bool(parsed.raises) and parsed.raises.rstrip("?") in case["raises"]
        else:
            values = case.get("values") or {}
            same = parsed.accepted and all(_value(parsed.conf, key) == value for key, value in values.items())
        if not same:
            wrong.append((case, parsed))
    assert wrong == []


def _value(conf: Any, key: str) -> object:
    value = getattr(conf, key)
    if isinstance(value, float):
        return pytest.approx(value, rel=1e-5)  # printed with six digits
    return list(value) if isinstance(value, tuple) else value


def test_differences_show() -> None:
    """Every difference with an example: some two releases, or torch and a plain reading, disagree about it."""
    for difference in DIFFERENCES:
        if difference.example and difference.versions not in ("all", "2.10 and later"):
            seen = {
                (parsed.accepted, parsed.raises, parsed.conf)
                for minor in ((1, 12), (1, 13), *((2, minor) for minor in range(15)))
                for parsed in [parse_conf(difference.example, minor)]
            }
            assert len(seen) > 1, difference
