"""Random small snapshots read back as they were written, through every protocol, JSON, and whatever is in between."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomctl.model.snapshot import Snapshot
from oomctl.sources.jsons import load_json
from oomctl.sources.snapshot_objects import snapshot_from_objects
from oomctl.sources.snapshot_pickle import read_pickle
from tests.sources import convert
from tests.sources.compare import columns

pytestmark = pytest.mark.usefixtures("engine")

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
_FRAME = st.fixed_dictionaries({"name": _TEXT, "filename": _TEXT, "line": st.integers(0, 2**31 - 1)})


@st.composite
def snapshots(draw) -> dict:
    """What a toy allocator leaves behind: one segment for each allocation, the trace of all of them."""
    frames = draw(st.lists(_FRAME, min_size=1, max_size=5))
    stacks = st.lists(st.sampled_from(frames), max_size=6)
    texts = draw(st.lists(_TEXT, min_size=1, max_size=3))
    state: dict = {
        "segments": {},
        "trace": [],
        "time": draw(st.integers(1, 2**50)),
        "next": draw(st.integers(1, 2**40)),
    }

    def event(action: str, addr: int, size: int, stream: int, stack: list) -> None:
        state["time"] += draw(st.integers(0, 99))
        entry = {"action": action, "addr": addr, "size": size, "stream": stream, "time_us": state["time"]}
        entry |= {"compile_context": draw(st.sampled_from(texts)), "user_metadata": draw(st.sampled_from(texts))}
        state["trace"].append(entry | {"pool_id": (0, 0), "frames": stack})

    for _ in range(draw(st.integers(0, 12))):
        live = [s for s in state["segments"].values() if s["blocks"][0]["state"] == "active_allocated"]
        choice = draw(st.sampled_from(["alloc", "free", "oom"]))
        stack = draw(stacks)
        if choice == "alloc":
            request = draw(st.integers(1, 2**32))
            size = -(-request // 2**21) * 2**21
            addr, stream = state["next"] * 2**21, draw(st.sampled_from([0, 7, 2**47]))
            state["next"] += size // 2**21 + draw(st.integers(0, 3))
            event("segment_alloc", addr, size, stream, stack)
            event("alloc", addr, request, stream, stack)
            block = {"address": addr, "size": size, "requested_size": request, "state": "active_allocated"}
            state["segments"][addr] = {
                "device": 0, "address": addr, "total_size": size, "allocated_size": size, "active_size": size,
                "requested_size": request, "stream": stream, "segment_type": "large" if size > 2**20 else "small",
                "segment_pool_id": (0, 0), "is_expandable": False, "frames": stack,
                "blocks": [block | {"frames": stack}],
            }  # fmt: skip
        elif choice == "free" and live:
            segment = draw(st.sampled_from(live))
            block = segment["blocks"][0]
            for action in ("free_requested", "free_completed"):
                event(action, block["address"], block["requested_size"], segment["stream"], stack)
            block |= {"state": "inactive", "frames": []}
            if draw(st.booleans()):
                event("segment_free", segment["address"], segment["total_size"], segment["stream"], stack)
                del state["segments"][segment["address"]]
        elif choice == "oom":
            event("oom", 0, draw(st.integers(512, 2**40)), 0, stack)
            del state["trace"][-1]["addr"]
            state["trace"][-1]["device_free"] = draw(st.integers(0, 2**38))
    annotation = st.fixed_dictionaries(
        {
            "name": _TEXT,
            "stage": st.sampled_from(["START", "END"]),
            "device": st.just(0),
            "time_us": st.integers(0, 2**50),
        }
    )
    return {
        "segments": list(state["segments"].values()),
        "device_traces": [state["trace"]],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": draw(_TEXT),
            "max_split_size": -1,
            "expandable_segments": False,
        },
        "external_annotations": draw(st.lists(annotation, max_size=3)),
    }


def contents(snapshot: Snapshot) -> tuple:
    return columns(snapshot), str(snapshot.torch), snapshot.skipped, snapshot.unknown_keys


@settings(max_examples=120, deadline=None)
@given(snapshots())
def test_every_way_gives_the_same(data):
    events = copy.deepcopy(data["device_traces"][0])
    wanted = contents(snapshot_from_objects(copy.deepcopy(data)))
    for protocol in (2, 3, 4, 5):
        assert contents(read_pickle(pickle.dumps(data, protocol))) == wanted
    assert contents(read_pickle(convert.pickled_by_cpp(data))) == wanted
    assert contents(snapshot_from_objects(load_json(json.dumps(data).encode()))) == wanted
    snapshot = read_pickle(pickle.dumps(data))
    assert snapshot.skipped == ()
    trace = snapshot.devices[0].trace if snapshot.devices else None
    assert (trace is None) == (not events)
    if trace is not None:
        assert trace.size.tolist() == [e["size"] for e in events]
        assert [snapshot.stacks[i] for i in trace.stack.tolist()] == [
            tuple((f["filename"], f["line"], f["name"]) for f in e["frames"]) for e in events
        ]
