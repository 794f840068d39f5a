"""`oomctl culprits`: the rows sum to what is live, at every moment and whatever a row is."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomctl import api
from oomctl.cli.main import main
from oomctl.errors import OomctlError
from tests.golden import check

from .programs import Op, programs, snapshot

CAPTURES = Path(__file__).resolve().parents[2] / "fixtures" / "captures"
NAMES = ("losses-kept", "losses-kept-ring", "outputs-kept-nostack", "graph-pools", "healthy-steady", "kv-cat")


@pytest.mark.parametrize("name", NAMES)
def test_rows_sum_to_the_active_bytes(name: str) -> None:
    evidence = api.load(str(CAPTURES / name / "snapshot.pickle.gz"))
    for at in ("peak", "end", "500", None):
        for by in ("frame", "stack", "size"):
            found = api.holdings(evidence, at=at, by=by)
            assert sum(row.bytes for row in found.rows) == found.active > 0
            assert sum(row.blocks for row in found.rows) == found.blocks
            assert found.active <= found.reserved
            assert list(found.rows) == sorted(found.rows, key=lambda row: -row.bytes)


def test_the_failure_is_what_the_report_is_about() -> None:
    path = str(CAPTURES / "losses-kept" / "snapshot.pickle.gz")
    report, found = api.diagnose(path, whatif=False), api.holdings(path)
    assert report.budget is not None
    assert (found.at, found.active, found.reserved) == ("oom", report.budget.active, report.budget.reserved)


@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from(["frame", "stack", "size"]), st.data())
def test_any_moment_of_any_program(ops: list[Op], by: str, data: st.DataObject) -> None:
    if not ops:
        return
    made = snapshot(ops)
    trace = made.devices[0].trace
    assert trace is not None
    event = data.draw(st.integers(0, len(trace) - 1))
    found = api.holdings(made, at=str(event), by=by)
    sizes = {i: max(-(-op.size // 512) * 512, 512) for i, op in enumerate(op for op in ops if op.of < 0)}
    live, at, number = 0, -1, 0
    for op in ops:
        at += 2
        if at > event + 1:
            break
        if op.of >= 0:
            live -= sizes[op.of] if at <= event else 0
        else:
            live += sizes[number] if at <= event else 0
            number += 1
    assert sum(row.bytes for row in found.rows) == found.active == live


@pytest.mark.parametrize(
    ("at", "by", "message"),
    [
        ("oom", "frame", "nothing failed"),
        ("999999", "frame", "there is no event 999,999"),
        ("soon", "frame", "no moment 'soon'"),
        ("-1", "frame", "no moment"),
        ("peak", "colour", "no rows by 'colour'"),
    ],
)
def test_moments_that_are_not_there(at: str, by: str, message: str) -> None:
    with pytest.raises(OomctlError, match=message):
        api.holdings(str(CAPTURES / "healthy-steady" / "snapshot.pickle.gz"), at=at, by=by)


@pytest.mark.parametrize("by", ["frame", "stack", "size"])
def test_output(by: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["culprits", str(CAPTURES / "losses-kept" / "snapshot.pickle.gz"), "--by", by]) == 0
    check(Path(__file__).parent / "golden" / f"culprits-{by}.txt", capsys.readouterr().out)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["culprits", str(CAPTURES / "kv-cat" / "snapshot.pickle.gz"), "--at", "oom", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["schema"] == "oomctl.culprits/1"
    assert main(["schema", "culprits"]) == 0
    jsonschema.validate(data, json.loads(capsys.readouterr().out))
    assert main(["schema", "nothing"]) == 2
    assert sum(row["bytes"] for row in data["rows"]) == data["active"]
