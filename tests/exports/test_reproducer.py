"""Reproducers: the script makes the recorded requests, fails where the recording did, and less of it does too."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oomctl import OomctlError, api
from oomctl.allocator.requests import Op
from oomctl.exports.base import Job
from oomctl.exports.repro.pattern import Pattern, Step
from oomctl.exports.repro.reduce import reduced
from oomctl.exports.repro.simulate import fails, recorded
from oomctl.exports.reproducer import faithful
from oomctl.model.evidence import Evidence
from oomctl.model.stacks import Frame
from oomctl.sources.consistency import checked

from . import cases

STUB = Path(__file__).parent / "stub"
FAILED = (
    "batch-too-large",
    "first-step",
    "graph-pools",
    "logits-upcast-expandable",
    "losses-kept",
    "losses-kept-ring",
    "rounding-waste",
    "varlen-train",
)
"""Peaks, private pools, expandable segments, leaks, a trace that starts in the middle, fragmentation."""


def job(name: str) -> Job:
    return Job(cases.evidence(name), judge=api._class_of)


def run(script: Path, *args: str, **env: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a script with the stub for torch."""
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(STUB), root]), **env}
    command = [sys.executable, str(script), *args]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def outcome(script: Path, *args: str) -> dict[str, Any]:
    code, out, err = run(script, *args)
    assert err == ""
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert code == (0 if found["reached"] else 1)
    return found


@pytest.mark.parametrize("reduce", [False, True], ids=["whole", "reduced"])
@pytest.mark.parametrize("name", FAILED)
def test_the_script_fails_at_the_recorded_request(name: str, reduce: bool, tmp_path: Path) -> None:
    known = cases.concluded(name)
    assert known.request is not None
    remarks = api.export(cases.evidence(name), str(tmp_path / "repro.py"), reduce=reduce)
    assert f"would record is the same: {api._class_of(cases.evidence(name))}" in " ".join(remarks)
    found = outcome(tmp_path / "repro.py")
    assert found["reached"], found
    assert found["request"] == known.request.size
    if not reduce and not known.truncated:
        assert found["allocated"] == known.budget.allocated
        assert found["reserved"] == known.budget.reserved


@pytest.mark.parametrize("name", ["batch-too-large", "varlen-train"])
def test_the_script_asks_as_the_program_did(name: str, tmp_path: Path) -> None:
    snapshot = cases.evidence(name).snapshots[0]
    trace = snapshot.devices[0].trace
    assert trace is not None
    until = cases.concluded(name).moment.event
    rows = [i for i in np.flatnonzero(np.isin(trace.action, (0, 7))).tolist() if i <= until]
    api.export(cases.evidence(name), str(tmp_path / "repro.py"))
    outcome(tmp_path / "repro.py", "--dump", str(tmp_path / "asked.json"))
    asked = json.loads((tmp_path / "asked.json").read_text())
    assert [size for size, _ in asked] == trace.size[rows].tolist()
    for (_, frames), row in zip(asked, rows, strict=True):
        wanted = [[os.path.basename(f.filename), f.line, f.name] for f in snapshot.stacks[int(trace.stack[row])]]
        inner = [[os.path.basename(file), line, function] for file, line, function in frames[: len(wanted)]]
        assert inner == wanted


def test_a_verdict_that_requests_do_not_show_is_said(tmp_path: Path) -> None:
    remarks = api.export(cases.evidence("crowded-early"), str(tmp_path / "repro.py"))
    assert any("not external: requests alone do not show why" in remark for remark in remarks)
    assert outcome(tmp_path / "repro.py")["reached"]


def test_a_card_that_is_too_full_is_said(tmp_path: Path) -> None:
    api.export(cases.evidence("batch-too-large"), str(tmp_path / "repro.py"))
    code, _, err = run(tmp_path / "repro.py", STUB_FREE="1000")
    assert code == 1
    assert err.startswith("this GPU has 1,000 bytes free")


@pytest.mark.parametrize("name", ["kv-cat", "varlen-train", "losses-kept"])
def test_what_would_be_recorded_is_a_sound_snapshot(name: str) -> None:
    pattern, cls = faithful(job(name))
    snapshot = recorded(pattern)
    device, problems = checked(snapshot.devices[0])
    assert not problems
    assert device.trace is not None
    assert device.trace.action[-1] == Op.OOM + 3  # Action.OOM
    assert api._class_of(Evidence(snapshots=(snapshot,))) == cls


def test_nothing_more_can_go() -> None:
    pattern, _ = faithful(job("varlen-train"))
    small = reduced(pattern, fails)
    assert fails(small)
    assert small.requests < pattern.requests // 3
    for key in {step.key for step in small.steps if step.op == Op.ALLOC}:
        without = [step for step in small.steps[:-1] if step.key != key]
        assert not fails(small.with_steps([*without, small.steps[-1]]))


def test_the_work_is_bounded() -> None:
    pattern, _ = faithful(job("varlen-train"))
    attempts = []

    def counting(one: Pattern) -> bool:
        attempts.append(len(one.table))
        return fails(one)

    assert fails(reduced(pattern, counting, work=20_000))
    assert sum(attempts[:-1]) < 20_000


HOSTILE = ("\\", "'", '"', "a\nimport os", "'''", '"""', "@STEPS@", "@CONF@", "\u202e", "\ud800", "{}", "%s")


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_names_from_files_stay_data(text: str, tmp_path: Path) -> None:
    source = cases.evidence("batch-too-large")
    snapshot = source.snapshots[0]
    frames = tuple(Frame(f"{text}.py", frame.line, text) for frame in snapshot.stacks.frames)
    hostile = replace(source, snapshots=(replace(snapshot, stacks=replace(snapshot.stacks, frames=frames)),))
    api.export(hostile, str(tmp_path / "repro.py"))
    plain = (tmp_path / "repro.py").read_text(encoding="ascii")
    imports = re.findall(r"^import (\w+)", plain, re.MULTILINE)
    assert imports == ["argparse", "functools", "json", "os", "sys", "types", "torch"]
    if "\ud800" not in text:
        assert outcome(tmp_path / "repro.py")["reached"]


def test_where_files_lie_is_not_told(tmp_path: Path) -> None:
    api.export(cases.evidence("varlen-train"), str(tmp_path / "repro.py"))
    text = (tmp_path / "repro.py").read_text()
    assert "/workspace" not in text
    assert "/usr/local" not in text
    assert "'/site-packages/torch/" in text


def test_there_must_be_a_failure(tmp_path: Path) -> None:
    with pytest.raises(OomctlError, match="no failure to reproduce"):
        api.export(cases.evidence("healthy-steady"), str(tmp_path / "repro.py"))


def test_an_impossible_limit_is_refused(tmp_path: Path) -> None:
    pattern, _ = faithful(job("batch-too-large"))
    assert not fails(replace(pattern, limit=1 << 40))
    assert not fails(pattern.with_steps([*pattern.steps[:-1], Step(Op.OOM, -1, 512)]))
