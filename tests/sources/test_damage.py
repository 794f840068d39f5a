"""Cut, bent and contradictory snapshots: what is sound is read, what is lost is said."""

from __future__ import annotations

import copy
import functools
import gzip
import json
import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomctl.errors import OomctlError
from oomctl.model.evidence import Evidence
from oomctl.model.snapshot import Snapshot
from oomctl.sources import consistency
from oomctl.sources.reading import read_inputs
from oomctl.sources.snapshot_objects import snapshot_from_objects
from oomctl.sources.snapshot_pickle import read_pickle
from tests.sources import convert
from tests.sources.compare import differing, result
from tests.sources.test_walk import mutated

pytestmark = pytest.mark.usefixtures("engine")

objects = functools.cache(convert.capture)


def whats(snapshot: Snapshot) -> list[str]:
    return [s.what for s in snapshot.skipped]


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("name", ["first-step", "graph-pools"])
@pytest.mark.parametrize("version", ["1.13", "2.0", "2.14"])
def test_cut_anywhere(name, version, protocol):
    data = pickle.dumps(convert.as_version(objects(name), version), protocol)
    whole = read_pickle(data)
    rng = random.Random(name + version)
    lengths = [0, 0]
    for end in sorted(rng.sample(range(2, len(data)), 12)):
        part = result(lambda end=end: read_pickle(data[:end]))
        if isinstance(part, str):
            assert "damaged" in part or "not of a memory snapshot" in part
            assert lengths == [0, 0]
            continue
        assert whats(part)[0] == "the rest of the file"
        (device,), (reference,) = part.devices, whole.devices
        count = len(device.segments)
        assert device.segments.address.tolist() == reference.segments.address[:count].tolist()
        events = 0
        if (trace := device.partial_trace) is not None:
            assert count == len(reference.segments)
            events = len(trace)
            assert trace.address.tolist() == reference.trace.address[:events].tolist()
            stacks = [part.stacks[i] for i in trace.stack]
            assert stacks == [whole.stacks[i] for i in reference.trace.stack[:events]]
        elif (trace := device.trace) is not None:
            events = len(trace)
            assert differing(part, whole, ("settings", "annotations")) == []
        assert lengths <= [count, events]
        lengths = [count, events]
    assert lengths[0] > 0


def test_cut_between_devices():
    """Events go to the device in whose list they stood, although that list's end was never read."""
    data = pickle.dumps(convert.on_devices(objects("shape-bug"), 4))
    whole = read_pickle(data)
    for share in (0.7, 0.8, 0.95):
        part = read_pickle(data[: int(len(data) * share)])
        traces = [d.partial_trace for d in part.devices]
        for trace, device in zip(traces, whole.devices, strict=True):
            if trace is not None:
                assert trace.time_us.tolist() == device.trace.time_us[: len(trace)].tolist()
        lengths = [0 if t is None else len(t) for t in traces]
        full = len(whole.devices[0].trace)
        last = next(i for i, n in enumerate(lengths) if n < full)
        assert lengths[:last] == [full] * last
        assert not any(lengths[last + 1 :])


def test_cut_while_packed(tmp_path):
    path = tmp_path / "snapshot.pickle.gz"
    packed = (convert.CAPTURES / "graph-pools" / "snapshot.pickle.gz").read_bytes()
    path.write_bytes(packed[: len(packed) * 3 // 4])
    found = read_inputs([str(path)])
    assert [s.what for s in found.skipped] == ["all of the input"]
    assert "gzip data ends early" in found.skipped[0].reason
    assert "the rest of the file" in whats(found.snapshots[0])
    path.write_bytes(
        gzip.compress(b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n" * 9)[:-9]
    )
    found = read_inputs([str(path)])
    assert found.oom_events
    assert [s.what for s in found.skipped] == ["all of the input"]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(["first-step", "crowded-early"]), st.sampled_from([2, 4]), st.integers(0, 2**32))
def test_mutations_end_in_a_snapshot_or_a_line(name, protocol, seed):
    data = mutated(pickle.dumps(objects(name), protocol), seed)
    found = result(lambda: read_pickle(data))
    assert isinstance(found, Snapshot) or (found and "\n" not in found)


@settings(max_examples=150, deadline=None)
@given(
    st.binary(max_size=400), st.sampled_from([b"", b"\x80\x04", b"\x80\x02}q\0(X", b"{", b"PK\3\4", b"\x1f\x8b\x08"])
)
def test_random_bytes_end_in_evidence_or_a_line(tmp_path_factory, data, head):
    path = tmp_path_factory.getbasetemp() / "random"
    path.write_bytes(head + data)
    found = result(lambda: read_inputs([str(path)]))
    assert isinstance(found, Evidence) or found.startswith(f"{path}: ")


ODD = (
    None,
    True,
    -1,
    1.5,
    float("nan"),
    2**63,
    2**64,
    -(2**70),
    "x",
    "\ud800",
    [],
    {},
    (1, 2),
    [[]],
    {"action": "oom"},
)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_value_in_any_place(data):
    """Objects of the right shape with one value of a wrong kind somewhere."""
    tree = copy.deepcopy(objects("crowded-early"))
    where: object = tree
    for _ in range(data.draw(st.integers(1, 5))):
        if not isinstance(where, dict | list) or not where:
            break
        key = data.draw(st.sampled_from(list(where)) if isinstance(where, dict) else st.integers(0, len(where) - 1))
        parent, where = where, where[key]
    value = data.draw(st.sampled_from(ODD))
    parent[key] = value
    for again in (False, True):
        tree_again = json.loads(json.dumps(tree)) if again else copy.deepcopy(tree)
        found = result(lambda given_=tree_again: snapshot_from_objects(given_))
        assert isinstance(found, Snapshot) or found


def bent(change) -> Snapshot:
    data = copy.deepcopy(objects("first-step"))
    change(data)
    return read_pickle(pickle.dumps(data))


def test_times_that_run_backwards():
    def change(data):
        for event in data["device_traces"][0][100:]:
            event["time_us"] -= 10**9

    snapshot = bent(change)
    assert whats(snapshot) == [consistency.TIME_RUNS_BACKWARDS]
    assert snapshot.devices[0].trace is not None


@pytest.mark.parametrize(
    ("change", "slug"),
    [
        (lambda s: s["blocks"].pop(), consistency.BLOCKS_DO_NOT_TILE),
        (lambda s: s["blocks"].clear(), consistency.BLOCKS_DO_NOT_TILE),
        (lambda s: s.update(total_size=s["total_size"] + 512), consistency.BLOCKS_DO_NOT_TILE),
        (lambda s: s["blocks"][0].update(size=0), consistency.SIZES_ABSURD),
        (lambda s: s["blocks"][0].update(state="active_allocated", requested_size=1 << 40), consistency.SIZES_ABSURD),
        (lambda s: s.update(address=2**64 - 512), consistency.SIZES_ABSURD),
        (lambda s: s.update(total_size=-1), "segments"),
        (lambda s: s["blocks"][0].update(state="asleep"), "segments"),
        (lambda s: s["blocks"][0].pop("size"), "segments"),
    ],
)
def test_an_impossible_segment_is_left_out(change, slug):
    snapshot = bent(lambda data: change(data["segments"][5]))
    assert slug in whats(snapshot)
    assert len(snapshot.devices[0].segments) == len(objects("first-step")["segments"]) - 1
    if slug != "segments":
        with pytest.raises(OomctlError, match=slug):
            bent(lambda data: [change(segment) for segment in data["segments"]])


def test_segments_over_each_other():
    snapshot = bent(lambda data: data["segments"].append(copy.deepcopy(data["segments"][3])))
    assert consistency.SEGMENTS_OVERLAP in whats(snapshot)
    assert len(snapshot.devices[0].segments) == len(objects("first-step")["segments"])


def _elsewhere(events: list, share: float) -> None:
    rng = random.Random(1)
    for event in events:
        if "addr" in event and rng.random() < share:
            event["addr"] += 1 << 40


def test_a_trace_of_another_story():
    with pytest.raises(OomctlError, match="contradicts itself"):  # as synthetic samples with random addresses do
        bent(lambda data: _elsewhere(data["device_traces"][0], 1))
    snapshot = bent(lambda data: _elsewhere(data["device_traces"][0], 0.1))
    assert whats(snapshot) == [consistency.TRACE_CONTRADICTS_SEGMENTS]
    (device,) = snapshot.devices
    assert device.trace is None
    assert len(device.partial_trace) == len(objects("first-step")["device_traces"][0])


@pytest.mark.parametrize("kinds", [("free_completed",), ("free_requested",), ("alloc",), ("free_requested", "alloc")])
def test_traces_without_some_kinds_are_no_contradiction(kinds):
    """torch's `skip_actions` leaves out whole kinds of events."""

    def change(data):
        data["device_traces"][0] = [e for e in data["device_traces"][0] if e["action"] not in kinds]

    snapshot = bent(change)
    assert snapshot.skipped == ()
    assert snapshot.devices[0].trace is not None


def test_damaged_events_keep_the_others_in_place():
    def change(data):
        events = data["device_traces"][0]
        del events[10]["size"]
        events[11]["addr"] = "there"
        events[12] = None
        events[13]["size"] = -5
        events[14]["user_metadata"] = 7

    snapshot = bent(change)
    (device,) = snapshot.devices
    reference = read_pickle(pickle.dumps(objects("first-step"))).devices[0].trace
    trace = device.trace if device.trace is not None else device.partial_trace
    assert trace.address[15:].tolist() == reference.address[15:].tolist()
    assert trace.action[10:14].tolist() == [11] * 4
    assert trace.action[14] == reference.action[14]
    assert any(s.reason.startswith("4 of ") for s in snapshot.skipped)
    assert "event texts" in whats(snapshot)
