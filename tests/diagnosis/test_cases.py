"""Recorded runs whose fault is known by construction: verdict, culprit and first remedy."""

from __future__ import annotations

import gzip
import json
from functools import cache
from pathlib import Path

import pytest

from oomctl import api
from oomctl.model.report import Report

CASES = Path(__file__).parent / "cases"
EXPECTED = {path.parent.name: json.loads(path.read_text()) for path in sorted(CASES.glob("*/expected.json"))}
RERUN = [name for name, e in EXPECTED.items() if e["rerun"]]


@cache
def diagnosed(name: str, *files: str) -> Report:
    return api.diagnose([str(CASES / name / file) for file in files if (CASES / name / file).exists()])


def both(name: str) -> Report:
    return diagnosed(name, "snapshot.pickle.gz", "stderr.log")


@pytest.mark.parametrize("name", EXPECTED)
def test_the_verdict_is_what_the_program_did(name):
    assert both(name).verdict.cls in EXPECTED[name]["accepted"]


@pytest.mark.parametrize("name", [name for name, e in EXPECTED.items() if e["culprits"]])
def test_a_culprit_is_among_the_first_three(name):
    sites = {f"{Path(c.file).name}:{c.function}" for c in both(name).culprits[:3]}
    assert sites & set(EXPECTED[name]["culprits"]), sites


@pytest.mark.parametrize("name", RERUN)
def test_the_first_advice_is_one_that_held_on_the_gpu(name):
    expected, first = EXPECTED[name], both(name).remedies[0]
    keys = {part.split(":")[0] for part in (first.alloc_conf or "").split(",") if part}
    if expected["class"] == "fragmentation" and expected["cured"]:
        assert any({part.split(":")[0] for part in conf.split(",")} <= keys for conf in expected["cured"] if conf)
    else:
        assert not first.alloc_conf


@pytest.mark.parametrize("name", [name for name, e in EXPECTED.items() if e["oom"]])
def test_the_snapshot_alone_is_never_surely_wrong(name):
    verdict = diagnosed(name, "snapshot.pickle.gz").verdict
    assert verdict.confidence != "high" or verdict.cls in EXPECTED[name]["accepted"]


@pytest.mark.parametrize("name", [name for name, e in EXPECTED.items() if e["oom"]])
def test_a_damaged_snapshot_beside_the_log_is_never_surely_wrong(name, tmp_path):
    """What is left of its segments is the state at the end, which need not be the one that the message speaks of."""
    data = gzip.decompress((CASES / name / "snapshot.pickle.gz").read_bytes())
    cut = tmp_path / "snapshot.pickle"
    for share in (0.1, 0.5, 0.9):
        cut.write_bytes(data[: int(len(data) * share)])
        report = api.diagnose([str(cut), str(CASES / name / "stderr.log")])
        verdict = report.verdict
        assert verdict.confidence != "high" or verdict.cls in EXPECTED[name]["accepted"], verdict.headline
        lost = {limit.what for limit in report.limits} & {"the rest of the file", "one of the inputs"}
        assert len(lost) == 1  # the second where it is cut before the first segment
        if report.culprits and report.culprits[0].role == "requested":
            assert (report.culprits_rest_bytes, report.holes) == (0, None)
        message, held = report.oom_events[-1], report.budget.allocated
        if verdict.cls != "uncertain" and message.allocated is not None and held is not None:
            told = message.allocated - (message.private_pools or 0)
            assert abs(told - held) <= max(told // 50, 1 << 21)
