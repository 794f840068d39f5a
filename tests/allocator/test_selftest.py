"""The identity: a trace replayed under its own settings gives the recorded placements."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import oomctl
from oomctl.allocator import what_if
from oomctl.allocator.selftest import identity, read_recording
from oomctl.errors import OomctlError
from oomctl.model.snapshot import Action, Snapshot
from tests.allocator.machine import Machine, cut, random_program
from tests.allocator.test_heap import CONFS, LIMITS

CAPTURES = sorted((Path(__file__).parents[2] / "fixtures" / "captures").iterdir())
DATA = Path(__file__).parent / "data"
TORCH = (2, 11)
slow = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@cache
def snapshot(path: Path) -> Snapshot:
    return oomctl.load(str(path)).snapshots[0]


FILES = [*(folder / "snapshot.pickle.gz" for folder in CAPTURES), DATA / "conv.pickle.gz"]


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.parent.name)
def test_recorded_on_a_gpu(path: Path) -> None:
    found = identity(snapshot(path), 0, TORCH)
    assert (found.exact, found.segments_exact, found.reason) == (found.allocs, found.segments, "")


@pytest.mark.parametrize("keep", [0.5, 0.2, 0.05])
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.parent.name)
def test_ring_buffers(path: Path, keep: float) -> None:
    found = identity(cut(snapshot(path), keep), 0, TORCH)
    assert found.exact == found.allocs
    assert found.segments_exact == found.segments


@slow
@given(st.sampled_from(CONFS), st.sampled_from(LIMITS), st.integers(0, 10**6), st.booleans())
def test_generated_by_the_model_itself(conf: str, limit: int, seed: int, stacks: bool) -> None:
    # Without stacks, a flush that lets a request in at the edge of what it unmapped looks like an empty_cache.
    assume(stacks or conf != "expandable_segments:True,max_split_size_mb:64")
    machine = Machine(conf, limit, stacks)
    random_program(machine, seed, 150, emptying=stacks)
    recorded = machine.snapshot()
    if recorded.devices[0].trace is None:
        return
    found = read_recording(recorded, 0, TORCH, limit=limit)
    assert found.identity.exact == found.identity.allocs
    assert found.identity.segments_exact == found.identity.segments
    assert found.exact or not found.identity.allocs, found.identity.reason
    assert found.bracket.low <= limit
    assert found.bracket.high > limit or limit == LIMITS[0]


@slow
@given(st.sampled_from(CONFS), st.integers(0, 10**6))
def test_private_pools(conf: str, seed: int) -> None:
    machine = Machine(conf, pool_ids=True)
    random_program(machine, seed, 60, pools=True)
    if not machine.heap.pending:
        machine.drop_pool((1, 0))
    random_program(machine, seed + 1, 60)
    found = identity(machine.snapshot(), 0, TORCH)
    assert found.reason == ""


def test_private_pools_without_pool_ids() -> None:
    machine = Machine()
    random_program(machine, 3, 200, pools=True, emptying=False)
    assert identity(machine.snapshot(), 0, TORCH).reason == ""


@pytest.mark.parametrize("name", ["graph-pools", "varlen-train", "kv-cat"])
def test_flushes_are_told_from_empty_cache_without_stacks(name: str) -> None:
    original = snapshot(next(p for p in FILES if p.parent.name == name))
    device = original.devices[0]
    assert device.trace is not None
    bare = replace(device.trace, stack=np.full(len(device.trace), -1, np.int32))
    assert identity(replace(original, devices=(replace(device, trace=bare),)), 0, TORCH).reason == ""


def test_a_difference_is_found_and_named() -> None:
    machine = Machine()
    random_program(machine, 1, 200)
    recorded = machine.snapshot()
    device = recorded.devices[0]
    assert device.trace is not None
    address = device.trace.address.copy()
    row = np.flatnonzero(device.trace.action == Action.ALLOC)[20]
    address[row] += 1 << 30
    moved = replace(recorded, devices=(replace(device, trace=replace(device.trace, address=address)),))
    found = identity(moved, 0, TORCH)
    assert found.exact < found.allocs
    assert f"event {row:,}" in found.reason


def test_no_trace_is_an_answer() -> None:
    with pytest.raises(OomctlError, match="no trace"):
        identity(Machine().snapshot(), 0, TORCH)
    with pytest.raises(OomctlError, match="nothing about GPU 3"):
        identity(Machine().snapshot(), 3, TORCH)


@slow
@given(st.integers(0, 10**6), st.integers(1, 400))
def test_nonsense_is_survived(seed: int, n: int) -> None:
    machine = Machine(CONFS[seed % len(CONFS)])
    random_program(machine, seed, 60)
    recorded = machine.snapshot()
    device = recorded.devices[0]
    trace = device.trace
    assert trace is not None
    dice = np.random.default_rng(seed)
    events = len(trace)

    def disturbed(column: np.ndarray, high: int) -> np.ndarray:
        return np.where(dice.random(events) < 0.1, dice.integers(0, high, events), column).astype(column.dtype)

    action = trace.action.copy()
    action[dice.integers(0, events, n)] = dice.integers(0, 12, n)
    wrong = replace(
        trace, action=action, address=disturbed(trace.address, 1 << 63), size=disturbed(trace.size, 1 << 40)
    )
    nonsense = replace(recorded, devices=(replace(device, trace=wrong),))
    found = what_if(nonsense, 0, ["", "expandable_segments:True", "max_split_size_mb:32"], torch=TORCH, fit=n % 7 == 0)
    assert 0 <= found.identity.exact <= found.identity.allocs
    assert len(found.runs) == 3
