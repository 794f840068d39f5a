"""Snapshots written again: read back they are the same, torch's own tools take them, a window of one replays."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oomctl
from oomctl import OomctlError, api, tables
from oomctl.allocator import identity
from oomctl.model.evidence import Evidence
from oomctl.model.snapshot import Snapshot

from . import cases

NAMES = (*cases.NAMES, "rounding-waste", "crowded-early")


def written(name: str, folder: Path, **options: Any) -> Evidence:
    api.export(cases.evidence(name), str(folder / "t.pickle"), **options)
    return oomctl.load(str(folder / "t.pickle"))


@pytest.mark.parametrize("name", NAMES)
def test_read_back_it_is_the_same(name: str, tmp_path: Path) -> None:
    before, after = cases.evidence(name).snapshots[0], written(name, tmp_path).snapshots[0]
    assert (after.torch, after.backend, after.skipped, after.unknown_keys) == (
        before.torch,
        before.backend,
        before.skipped,
        (),
    )
    assert after.annotations == before.annotations
    assert after.settings == before.settings
    for left, right in zip(before.devices, after.devices, strict=True):
        assert left.trace is not None
        assert right.trace is not None
        for part in ("action", "address", "size", "stream", "time_us"):
            assert np.array_equal(getattr(left.trace, part), getattr(right.trace, part)), part
        assert left.trace.device_free == right.trace.device_free
        for part in ("address", "size", "requested", "state"):
            assert np.array_equal(getattr(left.blocks, part), getattr(right.blocks, part)), part
        for part in ("address", "size", "stream", "is_large", "is_expandable", "first_block"):
            assert np.array_equal(getattr(left.segments, part), getattr(right.segments, part)), part
        assert [before.stacks[i] for i in left.trace.stack[:500]] == [after.stacks[i] for i in right.trace.stack[:500]]


@pytest.mark.parametrize("name", ["kv-cat", "logits-upcast-expandable", "graph-pools"])
@pytest.mark.parametrize("options", [{}, {"last": 500}, {"around": "oom", "last": 400}], ids=str)
def test_torch_takes_it(name: str, options: dict[str, Any], tmp_path: Path) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz")
    written(name, tmp_path, **options)
    data = (tmp_path / "t.pickle").read_bytes()
    assert data[:2] == b"\x80\x04"
    assert not any(op.name == "GLOBAL" or op.name == "STACK_GLOBAL" for op, _, _ in pickletools.genops(data))
    objects = pickle.loads(data)
    assert "memory" in viz.trace_plot(objects).lower()
    assert viz.segment_plot(objects)
    assert viz.trace(objects)
    assert viz.segsum(objects)


@pytest.mark.parametrize(
    "name", ["kv-cat", "losses-kept", "varlen-train", "logits-upcast-expandable", "losses-kept-ring"]
)
@pytest.mark.parametrize("last", [50, 700])
def test_a_window_replays(name: str, last: int, tmp_path: Path) -> None:
    after = written(name, tmp_path, around="oom", last=last).snapshots[0]
    trace = after.devices[0].trace
    assert trace is not None
    assert len(trace) <= last
    assert len(trace.device_free) >= 1
    found = identity(after, 0, (2, 11))
    assert (found.exact, found.reason) == (found.allocs, "")


@pytest.mark.parametrize("name", NAMES)
def test_a_window_ends_in_the_state_after_it(name: str, tmp_path: Path) -> None:
    source = cases.evidence(name)
    at = "oom" if cases.concluded(name).failed else "peak"
    after = written(name, tmp_path, around=at, last=100)
    end = api.export(source, str(tmp_path / "u.pickle"), around=at, last=100)[0].split(" of ")[0].split()[-1]
    expected = tables.blocks(source, at=end)
    found = tables.blocks(after, at="end")
    for column in ("address", "size", "state", "segment", "requested"):
        assert (found[column] == expected[column]).all(), column


def test_a_window_keeps_what_was_annotated_in_it(tmp_path: Path) -> None:
    before: Snapshot = cases.evidence("losses-kept").snapshots[0]
    after = written("losses-kept", tmp_path, last=300).snapshots[0]
    trace = after.devices[0].trace
    assert trace is not None
    assert trace.time_us is not None
    inside = [one for one in before.annotations if trace.time_us[0] <= one.time_us <= trace.time_us[-1]]
    assert list(after.annotations) == inside


def test_there_must_be_such_a_moment(tmp_path: Path) -> None:
    with pytest.raises(OomctlError, match="nothing failed"):
        written("healthy-steady", tmp_path, around="oom")
