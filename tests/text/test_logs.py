"""Every pasted log gives its figures exactly, and a verdict that its text can carry."""

from __future__ import annotations

import pytest

from oomctl.diagnosis.from_text import conclude, conclude_text
from oomctl.model.report import CLASSES, CONFIDENCES
from oomctl.remedies import advise
from oomctl.sources.text import read_text
from tests.text.logs import NAMES, cells, evidence, expected, raw


@pytest.mark.parametrize("name", NAMES)
def test_figures(name: str) -> None:
    want, found = expected(name), read_text([raw(name)])
    if want["events"] is not None:
        got = [{key: getattr(e, key) for key in w} for w, e in zip(want["events"], found.oom_events, strict=False)]
        assert got == want["events"]
        assert len(found.oom_events) == len(want["events"])
    tables = cells(found)
    assert len(tables) == len(want["tables"])
    for w, (device, ooms, retries, rows) in zip(want["tables"], tables, strict=True):
        assert (device, ooms, retries) == (w["device"], w["num_ooms"], w["num_alloc_retries"])
        for label, pools in w["rows"].items():
            for pool, values in pools.items():
                assert list(rows[label][pool]) == values
    for key, value in want.get("extra", {}).get("stats", {}).items():
        assert found.memory_stats[0].values[key] == value


@pytest.mark.parametrize("name", NAMES)
def test_verdict(name: str) -> None:
    verdict = conclude(evidence(read_text([raw(name)]))).verdict
    assert verdict.cls in expected(name)["accepted"]
    assert verdict.cls in CLASSES
    assert verdict.confidence in CONFIDENCES
    assert verdict.headline
    assert "None" not in verdict.headline


@pytest.mark.parametrize("name", NAMES)
def test_a_single_line_of_figures_is_never_certain(name: str) -> None:
    found = read_text([raw(name)])
    verdict = conclude(evidence(found)).verdict
    alone = len(found.oom_events) == 1 and not (found.memory_summaries or found.series or found.memory_stats)
    if alone and found.oom_events[0].allocated is not None and verdict.cls not in ("external", "host_oom"):
        assert verdict.confidence != "high"


@pytest.mark.parametrize("name", [name for name in NAMES if expected(name).keys() & {"advice", "culprit"}])
def test_the_line_and_the_advice(name: str) -> None:
    want = expected(name)
    report = advise(conclude_text(evidence(read_text([raw(name)])))[0])
    if "advice" in want:
        assert ([r.slug for r in report.remedies] or [""])[0] == want["advice"]
    if "culprit" in want:
        sites = [f"{c.file.rpartition('/')[2]}:{c.line}" for c in report.culprits]
        assert (sites or [""])[0] == want["culprit"]


def test_sentinels_are_unknown() -> None:
    message = (
        b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 "
        b"GiB of which 0 bytes is free. Including non-PyTorch memory, this process has 17179869184.00 GiB memory in "
        b"use. "
        b"Of the allocated memory 6.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by PyTorch but "
        b"unallocated."
    )
    event = read_text([message]).oom_events[0]
    assert event.this_process_in_use is None
    assert event.free == 0
    zero = message.replace(b"17179869184.00 GiB", b"0 bytes")
    assert read_text([zero]).oom_events[0].this_process_in_use is None
