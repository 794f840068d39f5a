"""The recorded failures: what is concluded agrees with what happened, and with what torch itself printed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from oomctl import _resources, api
from oomctl.model.report import Report
from oomctl.units import GIB, KIB, MIB

CAPTURES = Path(str(_resources.fixtures().joinpath("captures")))
EXPECTED = {path.parent.name: json.loads(path.read_text()) for path in sorted(CAPTURES.glob("*/expected.json"))}
FAILED = [name for name, expected in EXPECTED.items() if expected["oom"]]


@cache
def diagnosed(name: str, *files: str) -> Report:
    return api.diagnose([str(CAPTURES / name / file) for file in files if (CAPTURES / name / file).exists()])


def both(name: str) -> Report:
    return diagnosed(name, "snapshot.pickle.gz", "stderr.log")


def rounding(printed: int) -> int:
    """Half of the last digit of a size that torch printed with two decimals."""
    unit = next((u for u in (GIB, MIB, KIB) if printed >= u), 200)
    return unit // 200 + 1


@pytest.mark.parametrize("name", EXPECTED)
def test_the_verdict_is_what_happened(name: str) -> None:
    assert both(name).verdict.cls in EXPECTED[name]["accepted"]


@pytest.mark.parametrize("name", [name for name, expected in EXPECTED.items() if expected["culprits"]])
def test_a_culprit_is_among_the_first_three(name: str) -> None:
    sites = {f"{Path(c.file).name}:{c.function}" for c in both(name).culprits[:3]}
    assert sites & set(EXPECTED[name]["culprits"]), sites


@pytest.mark.parametrize("name", FAILED)
def test_the_moment_agrees_with_the_message(name: str) -> None:
    """The state that the snapshot alone gives for the moment of failure, against what torch printed at that moment."""
    (message,) = api.load(str(CAPTURES / name / "stderr.log")).oom_events
    budget = diagnosed(name, "snapshot.pickle.gz").budget
    assert budget is not None
    assert None not in (message.allocated, message.reserved_unallocated, budget.allocated, budget.reserved)
    # Since 2.4 torch counts what is idle in private pools as allocated.
    allocated = budget.allocated + (budget.idle_private_pools or 0)
    assert abs(allocated - message.allocated) <= rounding(message.allocated)
    unallocated = budget.reserved - allocated
    assert abs(unallocated - message.reserved_unallocated) <= rounding(message.reserved_unallocated)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_books_close(name: str) -> None:
    budget = both(name).budget
    assert budget is not None
    idle = (
        budget.idle_split,
        budget.idle_whole_segments,
        budget.idle_other_streams,
        budget.idle_private_pools,
    )
    parts = (budget.requested, budget.rounding, budget.pending_free, *idle)
    assert budget.reserved == sum(part or 0 for part in parts)
    if budget.device_total is not None:
        outside = (budget.outside,) if budget.other_processes is None else (budget.other_processes, budget.non_pytorch)
        parts = (*outside, budget.reserved, budget.free, budget.unexplained)
        assert budget.device_total == sum(part or 0 for part in parts)


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_said_of_a_case_is_complete(name: str) -> None:
    readme = (CAPTURES.parent / "README.md").read_text(encoding="utf-8")
    assert f"| {name} | " in readme
    assert {p.name for p in (CAPTURES / name).iterdir()} - {"stderr.log"} == {
        "snapshot.pickle.gz",
        "summary.txt",
        "expected.json",
    }
    assert EXPECTED[name]["class"] in EXPECTED[name]["accepted"]


def test_they_stay_small() -> None:
    assert sum(path.stat().st_size for path in CAPTURES.rglob("*") if path.is_file()) <= 2 * MIB
