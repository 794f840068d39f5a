"""A short run of the fuzzer, and everything that it ever found."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fuzz import case
from tests.fuzz.runner import cases

FINDINGS = sorted((Path(__file__).parent / "findings").glob("*.*"))


@pytest.mark.parametrize(("kind", "count"), [("snapshots", 40), ("logs", 40), ("reports", 30)])
def test_mutated_inputs(kind: str, count: int) -> None:
    outcomes = list(cases(kind, 1, 0, count))
    assert len(outcomes) == count
    assert [one for one in outcomes if one.problem] == []
    assert {one.code for one in outcomes} >= {0, 2}


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: path.name)
def test_past_findings(path: Path, tmp_path: Path) -> None:
    """Each file once made oomctl fail; the dice choose other commands for it."""
    kind = "snapshots" if ".pickle" in path.suffixes else "logs"
    for number in range(6):
        outcome = case.run_on(path.read_bytes(), random.Random(number), tmp_path, kind, number)
        assert outcome.problem == ""


def test_the_watch_sees_what_it_watches_for(tmp_path: Path) -> None:
    """The audit hook, the control characters and the exit code: each is noticed when it is there."""
    trouble: list[str] = []
    with case._watched(trouble):
        (tmp_path / "written").write_text("x")
        (tmp_path / "made").mkdir()
    assert [word.split("(")[0] for word in trouble] == ["does open", "does os.mkdir"]
    assert case._wrong(["diagnose", "x"], 0, "a\x1b]8;;b", "")
    assert case._wrong(["diagnose", "x"], 3, "", "Traceback")
    assert case._wrong(["diagnose", "x"], 2, "half a report", "error: no\n")
    assert case._wrong(["diagnose", "x", "--json"], 0, '{"a": NaN}', "")
    assert not case._wrong(["diagnose", "x"], 2, "", "error: no\nhint: yes\n")


def test_a_case_is_made_again_by_its_number() -> None:
    assert all(case.made(kind, 5, 7)[0] == case.made(kind, 5, 7)[0] for kind in case.KINDS)
