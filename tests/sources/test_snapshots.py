"""A snapshot reads the same from every version, protocol, encoding and container."""

from __future__ import annotations

import functools
import json
import pickle

import pytest

from oomctl.analysis.frames import fold, user_frames
from oomctl.analysis.phases import PHASES, phase_of
from oomctl.model.common import Skipped
from oomctl.model.evidence import Evidence
from oomctl.model.snapshot import Action, BlockState, Snapshot
from oomctl.model.stacks import BACKWARD_OF, Frame
from oomctl.sources.reading import read_inputs
from oomctl.sources.snapshot_pickle import read_pickle
from tests.sources import convert
from tests.sources.compare import columns, differing

pytestmark = pytest.mark.usefixtures("engine")

NAMES = ("first-step", "graph-pools", "logits-upcast-expandable", "swiss-cheese")
objects = functools.cache(convert.capture)


@functools.cache
def reference(name: str) -> Snapshot:
    return read_pickle(pickle.dumps(objects(name), 4))


@functools.cache
def converted(name: str, version: str) -> object:
    return convert.as_version(objects(name), version)


def read(data: bytes, tmp_path, name: str = "input") -> Evidence:
    path = tmp_path / name
    path.write_bytes(data)
    return read_inputs([str(path)])


@pytest.mark.parametrize("name", [p.name for p in sorted(convert.CAPTURES.iterdir())])
def test_every_capture_agrees_with_the_plain_decoder(name):
    data = convert.capture(name)
    snapshot = read_inputs([str(convert.CAPTURES / name / "snapshot.pickle.gz")]).snapshots[0]
    (device,) = snapshot.devices
    events = data["device_traces"][0]
    trace = device.trace
    assert trace.address.tolist() == [e.get("addr", 0) for e in events]
    assert trace.size.tolist() == [e["size"] for e in events]
    assert trace.time_us.tolist() == [e["time_us"] for e in events]
    assert trace.stream.tolist() == [e["stream"] for e in events]
    assert [Action(a).name.lower() for a in trace.action.tolist()] == [e["action"] for e in events]
    assert trace.device_free == {i: e["device_free"] for i, e in enumerate(events) if e["action"] == "oom"}
    # A line of 2^64 - 1 is torch's "unknown" (one capture has it); the model's is 0.
    wanted = [tuple((f["filename"], f["line"] % (2**64 - 1), f["name"]) for f in e.get("frames", ())) for e in events]
    assert [snapshot.stacks[i] for i in trace.stack.tolist()] == wanted
    blocks = [b for s in data["segments"] for b in s["blocks"]]
    assert device.segments.address.tolist() == [s["address"] for s in data["segments"]]
    assert device.segments.size.tolist() == [s["total_size"] for s in data["segments"]]
    assert [device.pools[p] for p in device.segments.pool] == [s["segment_pool_id"] for s in data["segments"]]
    assert device.blocks.address.tolist() == [b["address"] for b in blocks]
    assert device.blocks.size.tolist() == [b["size"] for b in blocks]
    active = [b["requested_size"] if b["state"] != "inactive" else 0 for b in blocks]
    assert device.blocks.requested.tolist() == active
    assert len(snapshot.annotations) == len(data["external_annotations"])
    assert snapshot.skipped == snapshot.unknown_keys == ()
    assert (snapshot.backend, str(snapshot.torch)) == ("cuda", "2.10-2.11")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("version", convert.VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_versions_and_protocols(name, version, protocol):
    snapshot = read_pickle(pickle.dumps(converted(name, version), protocol))
    lacking = ("settings", "annotations")  # dropped or changed by the converter itself
    if version in ("1.13", "2.0"):
        lacking += ("segments.stack", "segments.pool", "segments.is_expandable")
    assert differing(snapshot, reference(name), lacking) == []
    assert str(snapshot.torch) == convert.RANGES[version]
    assert snapshot.unknown_keys == ()
    (device,) = snapshot.devices
    assert (device.trace is None) == (version == "1.13")
    assert [s.what for s in snapshot.skipped] == (["pinned host memory"] if version == "2.14" else [])
    number = tuple(map(int, version.split(".")))
    if device.trace is not None:
        assert (device.trace.time_us is None) == (number < (2, 2))
        assert (device.trace.context is None) == (number < (2, 8))
        assert (device.trace.metadata is None) == (number < (2, 10))
        assert (device.trace.pool is None) == (number < (2, 12))
    assert (snapshot.settings is None) == (number < (2, 3))


@pytest.mark.parametrize("name", NAMES)
def test_other_writers(name, tmp_path):
    data = objects(name)
    for written in (convert.pickled_by_cpp(data), json.dumps(data).encode(), json.dumps(data, indent=1).encode()):
        assert columns(read(written, tmp_path).snapshots[0]) == columns(reference(name))
    page = read(convert.as_viz_page(pickle.dumps(data)), tmp_path)
    assert columns(page.snapshots[0]) == columns(reference(name))
    bare = read_pickle(pickle.dumps(data["segments"]))  # torch.cuda.memory_snapshot() of a later torch
    assert differing(bare, reference(name), ("settings", "annotations")) == []
    assert bare.torch.low == (2, 1)


@pytest.mark.parametrize("compression", convert.COMPRESSIONS)
@pytest.mark.parametrize("version", ["1.13", "2.5", "2.14"])
def test_containers(compression, version, tmp_path):
    plain = pickle.dumps(converted("graph-pools", version), 4)
    found = read(convert.COMPRESSIONS[compression](plain), tmp_path, "trace.txt")  # the name must not matter
    assert columns(found.snapshots[0]) == columns(read_pickle(plain))
    (given,) = found.inputs
    assert given.kind == "snapshot"
    for word in ("pickle protocol 4", *compression.split(",")[0].split(" in ")):
        assert word in given.format
    assert given.sha256 is not None
    assert given.size > 0
    assert found.skipped == ()


def test_npu_and_xpu():
    npu = read_pickle(pickle.dumps(convert.as_npu(objects("first-step"))))
    assert (npu.backend, npu.torch.low, npu.torch.high) == ("npu", (2, 1), None)
    assert npu.devices[0].trace.action[-1] == Action.WORKSPACE_SNAPSHOT
    by_rounding = convert.as_npu(objects("graph-pools"))
    by_rounding["device_traces"] = [[]]
    assert read_pickle(pickle.dumps(by_rounding)).backend == "npu"
    xpu = read_pickle(pickle.dumps(convert.as_xpu(objects("first-step"))))
    assert xpu.backend == "xpu"
    assert int(xpu.devices[0].segments.address.min()) >= 1 << 63
    assert differing(xpu, reference("first-step"), ("address",)) == []
    signed = convert.as_xpu(objects("first-step"))  # torch's C++ pickler only has signed integers
    for event in signed["device_traces"][0]:
        if event.get("addr"):
            event["addr"] -= 1 << 64
    assert differing(read_pickle(pickle.dumps(signed)), xpu) == []


def test_backward_allocations_name_the_forward_line():
    stack = [("/app/train.py", 90, "main", "loss = step(x)"), ("/app/model.py", 12, "forward", "return F.gelu(x) * y")]
    data = convert.with_forward(objects("first-step"), stack)
    snapshot = read_pickle(pickle.dumps(data))
    expected = (BACKWARD_OF, Frame("/app/model.py", 12, "forward"), Frame("/app/train.py", 90, "main"))
    (device,) = snapshot.devices
    assert list(snapshot.stacks) == [expected]
    assert not device.trace.stack.any()
    assert not device.blocks.stack[device.blocks.state != BlockState.INACTIVE].any()
    assert PHASES[phase_of(expected)] == "backward"
    assert user_frames(expected)[0].name == "forward"
    assert [line.function for line in fold(expected)] == ["backward of", "forward", "main"]
    assert snapshot.skipped == (
        Skipped("pinned host memory", "host_segments and host_traces are recorded but not analysed"),
    )
    for damaged in (["no frame"], [3], "text", {"a": 1}):
        data["device_traces"][0][-1]["forward_frames"] = damaged
        assert int(read_pickle(pickle.dumps(data)).devices[0].trace.stack[-1]) == -1


def test_generated_code_names_the_line_it_was_generated_from():
    """A frame as torch 2.13 wrote it: torch.compile, `_snapshot(augment_with_fx_traces=True)`."""
    origin = '  File "/app/model.py", line 14, in block\n    z = probe(y)\n        ^^^^^^^^\n'
    generated = {
        "filename": "fx_generated__ehzmusmqh75h6eufc74z2gqf73jdcdtfspgvjgoaht27immi6vv.py", "line": 11,
        "name": "forward", "fx_node_op": "call_function", "fx_node_name": "z", "fx_node_target": "t.probe.default",
        "fx_original_trace": origin,
    }  # fmt: skip
    outer = {"filename": "/app/train.py", "line": 90, "name": "main"}
    data = convert.as_version(objects("first-step"), "2.14")
    for event in data["device_traces"][0]:
        event["frames"] = [generated, outer]
    snapshot = read_pickle(pickle.dumps(data))
    (stack,) = {snapshot.stacks[i] for i in snapshot.devices[0].trace.stack.tolist()}
    names = ["forward", "block", "main"]
    assert [frame.name for frame in stack] == names
    assert [frame.name for frame in user_frames(stack)] == names[1:]
    assert snapshot.unknown_keys == ()


def test_devices_are_kept_apart():
    snapshot = read_pickle(pickle.dumps(convert.on_devices(objects("graph-pools"), 3)))
    assert [d.index for d in snapshot.devices] == [1, 2]
    one, two = ({k[2:]: v for k, v in columns(snapshot).items() if k[0] == d} for d in "12")
    assert one == two
    assert one == {k[2:]: v for k, v in columns(reference("graph-pools")).items() if k[0] == "0"}


def test_more_devices_than_torch_can_have():
    data = objects("first-step")
    failed = {"action": "oom", "device_free": 0, "size": 512, "stream": 0, "frames": [], "time_us": 1}
    data = {**data, "device_traces": [*data["device_traces"], *([dict(failed)] for _ in range(999))]}
    snapshot = read_pickle(pickle.dumps(data))
    assert [d.index for d in snapshot.devices] == list(range(120))
    assert Skipped("traces of 880 devices", "torch has no device 120") in snapshot.skipped


@pytest.mark.parametrize("protocol", [2, 4])
def test_oddities_are_noted_and_not_fatal(protocol):
    data = convert.as_version(objects("first-step"), "2.14")
    data["new"] = [1]
    data["segments"][0]["colour"] = "red"
    data["segments"][0]["blocks"][0]["age"] = 3
    events = data["device_traces"][0]
    events[3]["mood"] = None
    del events[4]["frames"]
    events[5]["frames"] = [{"filename": "x\ud800.py", "line": 2**64 - 1, "name": "f"}]
    events[6]["frames"] = [{"filename": "a.py", "line": 7, "name": "f", "module": "m"}]
    events.insert(7, {"action": "levitate", "addr": 1, "size": 2, "stream": 3, "time_us": events[6]["time_us"]})
    events.insert(8, {"action": "annotate", "user_metadata": "here", "time_us": events[6]["time_us"]})
    snapshot = read_pickle(pickle.dumps(data, protocol))
    assert snapshot.unknown_keys == (
        "device_traces[][].mood",
        "frames[].module",
        "new",
        "segments[].blocks[].age",
        "segments[].colour",
    )
    trace = snapshot.devices[0].trace
    assert trace.stack[4] == -1
    assert snapshot.stacks[trace.stack[5]] == (("x?.py", 0, "f"),)
    assert trace.action[7] == Action.UNKNOWN
    assert trace.texts[trace.metadata[8]] == "here"
    assert [s.what for s in snapshot.skipped] == ["trace events", "pinned host memory"]
    assert "levitate" in snapshot.skipped[0].reason
