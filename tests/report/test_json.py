"""The JSON: valid against its own schema, read back without loss, the same bytes every time."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomctl.errors import OomctlError
from oomctl.model.common import VersionRange
from oomctl.model.report import Report
from oomctl.report.json import compact, dumps, from_json, from_text, parse_range, to_json
from oomctl.report.schema import schema

from .samples import SAMPLES, fragmentation, hostile

VALIDATOR = jsonschema.Draft202012Validator(schema())
TIMELINE = to_json(fragmentation())["timeline"]
texts = st.text(max_size=300) | st.sampled_from(["</script>", "\x1b]8;;x\x07", "\u202e\u2028", "\ud800", "a" * 10_000])
versions = st.none() | st.tuples(st.integers(0, 9), st.integers(0, 99))


@pytest.fixture(params=SAMPLES)
def report(request: pytest.FixtureRequest) -> Report:
    return SAMPLES[request.param]()


def test_valid_against_the_schema_and_read_back(report: Report) -> None:
    jsonschema.Draft202012Validator.check_schema(schema())
    data = json.loads(dumps(report))
    VALIDATOR.validate(data)
    assert from_json(data) == report
    assert from_text(compact(report)) == report
    assert dumps(from_json(data)) == dumps(report)


def test_the_contract_keys() -> None:
    data = to_json(fragmentation())
    assert data["schema"] == "oomctl.report/1"
    assert data["verdict"]["class"] == "fragmentation"
    assert data["verdict"]["contributing"][0]["class"] == "external"
    assert data["oom_events"][0]["process_pid"] == 1472
    assert "max_allowed" not in data["oom_events"][0]
    assert data["segment_map"]["segments"][1]["address"] == "0x7f0001400000"
    assert data["inputs"][0]["torch"] == "2.11"
    assert data["budget"]["outside"] is None
    assert data["verdict"]["evidence"][0]["numbers"]["holes_count"] == 1456
    rows = to_json(SAMPLES["text_only"]())["memory_summaries"][0]["rows"]
    assert rows["Non-releasable memory"]["all"]["total_freed"] is None


@given(texts)
def test_any_name_is_read_back(name: str) -> None:
    report = hostile(name)
    assert from_text(dumps(report)) == report


@given(versions, versions)
def test_any_range_is_read_back(low: tuple[int, int] | None, high: tuple[int, int] | None) -> None:
    text = str(VersionRange(low, high))
    assert parse_range(None if low is high is None else text) == VersionRange(low, high)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": "oomctl.report/9"}, "expected 'oomctl.report/1'"),
        ({"inputs": 3}, "report.inputs should be a list"),
        ({"verdict": None}, "report.verdict should be an object"),
        ({"recovered_ooms": "many"}, "recovered_ooms should be int, found str"),
        ({"torch": "2.x"}, "report.torch should be a range"),
        ({"others": [{}]}, "report.others[0].oomctl_version is missing"),
        ({"budget": {"reserved": True}}, "report.budget.reserved should be int"),
        ({"budget": {"reserved": 10**400}}, "report.budget.reserved should be a number from -2^256 to 2^256"),
        ({"recovered_ooms": float("nan")}, "report.recovered_ooms should be a number"),
        ({"holes": {"need": 1, "largest": -1}}, "report.holes.largest should be a number from 0"),
        ({"timeline": {**TIMELINE, "event": []}}, "report.timeline.time_us should have as many values as event, 0"),
        ({"timeline": {**TIMELINE, "event": TIMELINE["event"][::-1]}}, "report.timeline.event should never fall"),
        ({"request": {"stream": "0x" + "f" * 17}}, "report.request.stream should be hexadecimal text"),
    ],
)
def test_damaged_reports_are_refused_with_the_place(change: dict[str, object], said: str) -> None:
    with pytest.raises(OomctlError) as caught:
        from_json({**to_json(fragmentation()), **change})
    assert said in caught.value.message


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000, '<script id="oomctl-report">{</script>', "null"])
def test_text_that_holds_no_report(text: str) -> None:
    with pytest.raises(OomctlError):
        from_text(text)


def test_a_later_version_may_add_keys() -> None:
    report = replace(fragmentation(), fingerprint="x")
    assert from_json({**to_json(report), "brand_new": 1}) == report
