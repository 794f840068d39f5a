"""The compiled heap against Python's: the same blocks in the same places after the same requests."""

from __future__ import annotations

import functools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomctl.allocator.address import Descending
from oomctl.allocator.compiled import kernel_for, replay_compiled
from oomctl.allocator.limits import NO_LIMITS, Limits
from oomctl.allocator.policy import policy_of
from oomctl.allocator.replay import Plan, replay_plainly
from oomctl.allocator.selftest import Recording, read_recording
from oomctl.model.alloc_conf import parse_conf
from oomctl.progress import silent
from oomctl.sources.snapshot_objects import snapshot_from_objects
from tests.allocator.machine import TORCH, Machine, cut, random_program
from tests.native.same import state
from tests.sources import convert

pytest.importorskip("oomctl._native.heap")

CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:64,garbage_collection_threshold:0.6",
    "garbage_collection_threshold:0.8,roundup_power2_divisions:4",
    "expandable_segments:True,roundup_power2_divisions:[256:1,512:2,>:8]",
)
CAPTURES = ("graph-pools", "kv-cat", "losses-kept-ring", "swiss-cheese", "logits-upcast-expandable", "neighbour")


@functools.cache
def recorded(name: str) -> Recording:
    return read_recording(snapshot_from_objects(convert.capture(name)), 0, TORCH)


def assert_both_agree(recording: Recording, conf: str, limits: Limits, **how: object) -> None:
    policy = policy_of(parse_conf(conf, TORCH).conf, TORCH)
    descending = how.pop("descending", False)

    def plan() -> Plan:
        occupied = [(s.address, s.size) for s in recording.start.segments if not s.expandable]
        driver = Descending(occupied) if descending else recording.recorded_driver()
        usual = {
            "seeding": "pinned", "until": None, "compare": False, "stop_at_mismatch": False, "schedule": (),
            "start": recording.start, "progress": silent,
        } | how  # fmt: skip
        return Plan(requests=recording.requests, policy=policy, limits=limits, driver=driver, **usual)

    kernel = kernel_for(plan())
    assert kernel is not None
    assert state(replay_compiled(kernel, plan())) == state(replay_plainly(plan()))


@pytest.mark.parametrize("conf", CONFS)
@pytest.mark.parametrize("name", CAPTURES)
def test_recorded_traces(name, conf):
    recording = recorded(name)
    most = max(recording.growth.attempts, key=lambda a: a.after).after if recording.growth.attempts else 1 << 30
    for limits in (NO_LIMITS, Limits(fraction=most * 9 // 10), Limits(capacity=most * 3 // 4)):
        assert_both_agree(recording, conf, limits, until=recording.until)
        assert_both_agree(recording, conf, limits, compare=True)
        assert_both_agree(recording, conf, limits, compare=True, stop_at_mismatch=True, descending=True)
    for seeding in ("packed", "hybrid"):
        assert_both_agree(recording, conf, NO_LIMITS, seeding=seeding)


@pytest.mark.parametrize(
    "conf",
    ["max_split_size_mb:-1", "max_split_size_mb:9223372036854775807", "max_non_split_rounding_mb:99999999999999"],
)
def test_settings_beyond_64_bits(conf):
    assert_both_agree(recorded("swiss-cheese"), conf, NO_LIMITS)


@pytest.mark.parametrize("conf", ["large_segment_size_mb:-5", "large_segment_size_mb:99999999999999"])
def test_segments_beyond_64_bits_are_left_to_python(conf):
    recording = recorded("swiss-cheese")
    policy = policy_of(parse_conf(conf, (2, 12)).conf, (2, 12))
    plan = Plan(
        requests=recording.requests, policy=policy, limits=NO_LIMITS, driver=recording.recorded_driver(),
        seeding="pinned", until=None, compare=False, stop_at_mismatch=False, schedule=(), start=recording.start,
        progress=silent,
    )  # fmt: skip
    assert kernel_for(plan) is None


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(CONFS),
    st.sampled_from(CONFS),
    st.sampled_from([NO_LIMITS, Limits(fraction=200 << 20), Limits(capacity=300 << 20)]),
    st.sampled_from([None, 0.5]),
    st.integers(0, 10**6),
)
def test_made_up_programs(conf, other, limits, keep, seed):
    machine = Machine(conf, pool_ids=True)
    random_program(machine, seed, 150, pools=True)
    snapshot = machine.snapshot()
    recording = read_recording(snapshot if keep is None else cut(snapshot, keep), 0, TORCH)
    for setting in (conf, other):
        assert_both_agree(recording, setting, limits)
        assert_both_agree(recording, setting, limits, compare=True, descending=True)
    middle = recording.requests.events // 2
    assert_both_agree(recording, other, NO_LIMITS, schedule=((0, NO_LIMITS), (middle, limits)))
