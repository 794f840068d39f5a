"""The compiled decoder against Python's: the same columns, or both refuse; and nothing that it is fed hurts it."""

from __future__ import annotations

import functools
import pickle
import random

import pytest

from oomctl.errors import OomctlError
from oomctl.sources.compiled import read_compiled
from oomctl.sources.snapshot_pickle import read_objects
from tests.native.same import assert_same
from tests.sources import convert
from tests.sources.test_walk import mutated

decode = pytest.importorskip("oomctl._native.decode")

CAPTURES = ("first-step", "graph-pools", "kv-cat", "logits-upcast-expandable", "losses-kept-ring", "shape-bug")
VERSIONS = ("2.1", "2.2", "2.4", "2.7", "2.8", "2.9", "2.11", "2.12", "2.13", "2.14")
capture = functools.cache(convert.capture)


@functools.cache
def short(name: str, version: str, protocol: int) -> bytes:
    """A snapshot of a few kilobytes: its last events and first segments."""
    data = convert.as_version(capture(name), version)
    data["device_traces"] = [trace[-60:] for trace in data["device_traces"]]
    data["segments"] = [s | {"blocks": s["blocks"][:5]} for s in data["segments"][:5]]
    return pickle.dumps(data, protocol)


def read(data: bytes, step: int | None = None) -> object:
    """A snapshot, the line of a refusal, or None where it is left to Python."""
    try:
        return read_compiled([data] if step is None else (data[i : i + step] for i in range(0, len(data), step)))
    except OomctlError as error:
        return error.message


def reference(data: bytes) -> object:
    try:
        return read_objects(data)
    except OomctlError as error:
        return error.message


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("version", VERSIONS)
def test_layouts_of_all_versions(version, protocol):
    for name in ("graph-pools", "shape-bug"):
        data = pickle.dumps(convert.as_version(capture(name), version), protocol)
        found = read(data)
        assert found is not None
        assert_same(found, read_objects(data))


@pytest.mark.parametrize("name", CAPTURES)
def test_recorded_files(name):
    data = pickle.dumps(capture(name), 4)
    found = read(data)
    assert found is not None
    assert_same(found, read_objects(data))
    for step in (1 << 16, 4099, 17):
        assert_same(read(data[: 1 << 17] if step == 17 else data, step), read(data[: 1 << 17] if step == 17 else data))


def test_several_devices():
    data = pickle.dumps(convert.on_devices(capture("graph-pools"), 3))
    found = read(data)
    assert len(found.devices) > 1
    assert_same(found, read_objects(data))


def frame(number: int) -> dict[str, object]:
    return {"name": f"f{number}", "filename": "a.py", "line": number}


def with_events(change) -> bytes:
    """A small snapshot whose events went through a function."""
    data = convert.as_version(capture("first-step"), "2.12")
    data["device_traces"] = [[change(i, dict(event)) for i, event in enumerate(data["device_traces"][0])]]
    return pickle.dumps(data)


@pytest.mark.parametrize("depth", [1, 2, 999, 1000, 1001, 2000, 2001])
def test_stacks_of_any_depth(depth):
    frames = [frame(i) for i in range(depth)]
    shared = [*frames[:-1], frames[0]]
    data = with_events(lambda i, event: event | {"frames": list(frames) if i % 3 else shared})
    assert_same(read(data), read_objects(data))


CHANGES = {
    "texts": lambda i, e: e | {"compile_context": f"ctx{i % 7}", "user_metadata": ("", "é\u4e2d", "N/A")[i % 3]},
    "no frames": lambda i, e: {k: v for k, v in e.items() if k != "frames" or i % 2},
    "no stream": lambda i, e: {k: v for k, v in e.items() if k != "stream"},
    "a high address": lambda i, e: e | ({"addr": e["addr"] | 1 << 63} if "addr" in e else {}),
    "a negative stream": lambda i, e: e | {"stream": -1 - i % 2},
    "unknown lines": lambda i, e: e | {"frames": [frame(2**64 - 1), frame(-1), frame(2**31)]},
    "traced frames": lambda i, e: e | {"frames": [frame(3) | {"fx_node_op": "call", "fx_original_trace": ""}]},
    "pools": lambda i, e: e | {"pool_id": ((3, 0), (0, 0), (0, i % 5), (2**63, 1))[i % 4]},
}


@pytest.mark.parametrize("name", CHANGES)
def test_events_as_some_torch_may_write_them(name):
    data = with_events(CHANGES[name])
    found = read(data)
    assert found is not None
    assert_same(found, reference(data))


ORIGIN = '  File "/app/model.py", line 14, in block\n'
ODD = {
    "another key": lambda i, e: e | {"weather": 1},
    "a key for some": lambda i, e: {k: v for k, v in e.items() if k != "time_us" or i},
    "an unknown kind": lambda i, e: e | {"action": "user_defined"},
    "a float": lambda i, e: e | {"size": 1.5},
    "a bool": lambda i, e: e | {"size": True},
    "too large": lambda i, e: e | {"size": 1 << 60},
    "a lone surrogate": lambda i, e: e | {"user_metadata": "\ud800"},
    "frames of nothing": lambda i, e: e | {"frames": None},
    "a frame without a line": lambda i, e: e | {"frames": [{"name": "f", "filename": "a.py"}]},
    "a long number": lambda i, e: e | {"time_us": 1 << 70},
    "frames of a formatted stack": lambda i, e: e | {"frames": [frame(3) | {"fx_original_trace": ORIGIN}]},
    "a deep stack": lambda i, e: e | {"frames": [frame(k) for k in range(10_001)] if not i else []},
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_left_to_python(name):
    assert read(with_events(ODD[name])) is None


@pytest.mark.parametrize("batch", range(10))
def test_mutations_read_the_same_or_are_refused_by_both(batch):
    rng = random.Random(batch)
    for _ in range(200):
        sound = short(rng.choice(CAPTURES), rng.choice(("2.6", "2.11", "2.12")), rng.choice((2, 4)))
        data = mutated(sound, rng.randrange(1 << 30))
        found = read(data)
        if found is not None:
            assert_same(found, reference(data))


@pytest.mark.parametrize("batch", range(10))
def test_nothing_that_it_is_fed_crashes_it(batch):
    rng = random.Random(1000 + batch)
    for _ in range(1000):
        data = mutated(short(rng.choice(CAPTURES[:2]), "2.12", rng.choice((2, 4))), rng.randrange(1 << 30))
        whole, pieces = read(data), read(data, rng.choice((1, 7, 300)))
        assert type(whole) is type(pieces)


BOMBS = {
    "an index out of nowhere": b"\x80\x04Nr\xff\xff\xff\x7f.",
    "a long string announced": b"\x80\x04X\xff\xff\xff\xff",
    "a long number": b"\x80\x04\x8a\xff" + b"\x01" * 255 + b".",
    "lists in lists": b"\x80\x04" + b"](" * 500,
    "nothing but marks": b"\x80\x04" + b"(" * 100_000,
    "nothing but values": b"\x80\x04" + b"N" * 200_000,
    "lists of lists again and again": b"\x80\x04]\x94" + b"".join(b"](h%ch%ce\x94" % (i, i) for i in range(100)) + b".",
    "a list within itself": b"\x80\x04]\x94(h\x00e.",
    "a frame beyond the end": b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f}.",
    "frames within frames": b"\x80\x04\x95\x40\0\0\0\0\0\0\0\x95\x40\0\0\0\0\0\0\0}.",
    "a global": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
    "reduce": b"\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.",
    "nothing": b"\x80\x04",
    "no value": b"\x80\x04.",
    "another protocol": b"\x80\x06N.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused(name):
    def read_all() -> None:
        decoder = decode.Decoder(1)
        decoder.feed(BOMBS[name])
        decoder.finish()

    with pytest.raises(decode.Unsupported):
        read_all()


def test_objects_are_bounded_by_the_bytes_fed():
    many = b"\x80\x04](" + b"]" * 60_000 + b"e" + b"(" + b"]" * 60_000 + b"e"
    decoder = decode.Decoder(1)
    with pytest.raises(decode.Unsupported, match="more objects"):
        decoder.feed(many + (b"(" + b"N" * 60_000 + b"e") * 100)
