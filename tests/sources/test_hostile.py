"""Files that a stranger may send: nothing runs, nothing explodes, and one line says why."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import pickletools
import struct
import tracemalloc
import zipfile
import zlib

import pytest

from oomctl.errors import OomctlError
from oomctl.sources.reading import read_inputs
from tests.sources import convert

pytestmark = pytest.mark.usefixtures("engine")

MIB = 1 << 20
RAN = []


class Call:
    """Pickles as a call of a function of this module."""

    def __reduce__(self):
        return (RAN.append, (1,))


class Shell:
    def __reduce__(self):
        return (os.system, ("exit 7",))


def refusal(data: bytes, tmp_path, **options) -> OomctlError:
    path = tmp_path / "input"
    path.write_bytes(data)
    with pytest.raises(OomctlError) as caught:
        read_inputs([str(path)], **options)
    assert "\n" not in caught.value.message
    assert caught.value.message.startswith(f"{path}: ")
    return caught.value


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("hidden", [Call(), Shell(), print, os.system, {1, 2}, b"bytes", 1j])
def test_nothing_runs(hidden, protocol, tmp_path):
    for data in (hidden, {"segments": [], "x": hidden}, [hidden], {"device_traces": hidden, "segments": []}):
        refusal(pickle.dumps(data, protocol), tmp_path)
    assert RAN == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80\x04cos\nsystem\n(S'true'\ntR.", "os.system"),
        (b"\x80\x02(S'true'\nios\nsystem\n.", "memory snapshot"),
        (b"\x80\x02\x82\x01.", "memory snapshot"),
        (b"\x80\x02Pid\n.", "memory snapshot"),
        (b"\x80\x04\x8c\x0ctorch._utils\x94\x8c\x12_rebuild_tensor_v2\x94\x93.", "checkpoint (torch._utils._rebuild"),
        (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", "checkpoint"),
        (b"\x80\x04]\x942Q0.", "memory snapshot"),  # the opcodes with which batches are handed over
    ],
)
def test_explained(data, words, tmp_path):
    assert words in refusal(data, tmp_path).message


def tuple_bomb(levels: int) -> bytes:
    """A dict key that takes 2^levels steps to hash."""
    return b"\x80\x04})\x94" + b"".join(b"h" + bytes((i,)) * 2 + b"\x86\x94" for i in range(levels)) + b"Ns."


BOMBS = {
    "memo index": b"\x80\x02N" + b"r\xff\xff\xff\x7f" + b".",
    "memo index in text": b"\x80\x02Np4000000000\n.",
    "memo index late": b"\x80\x02]" + b"q\1h\1a" * 60000 + b"Nr\xff\xff\xff\x7fa.",
    "long string": b"\x80\x04X\xff\xff\xff\x7f.",
    "longer string": b"\x80\x04\x8d" + struct.pack("<Q", 1 << 40) + b".",
    "long bytes": b"\x80\x04\x8e" + struct.pack("<Q", 1 << 36) + b".",
    "byte array": b"\x80\x05\x96" + struct.pack("<Q", 1 << 36) + b".",
    "frame": b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b"N.",
    "long number": b"\x80\x04\x8b" + struct.pack("<i", 1 << 30) + b".",
    "number in text": b"\x80\x02I" + b"9" * 100000 + b"\n.",
    "tuple as key": tuple_bomb(60),
    "deep tuple as key": b"\x80\x04})" + b"\x85" * 200000 + b"Ns.",
    "colliding keys": b"\x80\x04}("
    + b"".join(b"\x8a\x10" + (i * (2**61 - 1) + (1 << 120)).to_bytes(16, "little") + b"N" for i in range(5000))
    + b"u.",
    "sets": b"\x80\x04" + b"\x8f" * 200000 + b".",
    "lists": b"\x80\x04](" + b"]" * 400_000 + b"e.",
    "dicts": b"\x80\x04](" + b"}" * 400_000 + b"e.",
    "doubled": b"\x80\x04]" + b"2" * 200000 + b".",
    "negative string": b"\x80\x02T\xff\xff\xff\xff.",
    "marks": b"\x80\x04" + b"(" * 500000,
    "appends to nothing": b"\x80\x04e.",
    "append to a number": b"\x80\x04K\1K\2a.",
    "itself": b"\x80\x04]\x94h\0a.",
    "itself as segments": b"\x80\x04}\x94\x8c\x08segments\x94]\x94h\2as.",
    "itself as everything": b"\x80\x04}\x94(\x8c\x08segments]\x94(}\x94(\x8c\x0atotal_sizeh\1\x8c\x06blocksh\1ueu.",
    "only a head": b"\x80\x04",
    "one byte": b"\x80",
}


@pytest.mark.parametrize("name", BOMBS)
def test_pickle_bombs(name, tmp_path):
    data = BOMBS[name]
    tracemalloc.start()
    try:
        refusal(data, tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * len(data) + 150 * MIB


def listed_again(what: str) -> dict:
    """A snapshot in which few objects stand for many."""
    data = convert.capture("first-step")
    segments, events = data["segments"], data["device_traces"][0]
    if what == "blocks":
        start = segments[0]["address"]
        blocks = [
            {"address": start + 512 * i, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": []}
            for i in range(2000)
        ]
        data["segments"] = [{**s, "blocks": blocks} for s in segments] * 20
    elif what == "segments":
        data["segments"] = segments[:1] * 200_000
    elif what == "events":
        data["device_traces"] = [events * 20]
    else:
        data["device_traces"] = [events] * 100
    return data


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("what", ["blocks", "segments", "events", "traces"])
def test_the_same_things_listed_again_and_again(what, protocol, tmp_path):
    data = pickle.dumps(listed_again(what), protocol)
    tracemalloc.start()
    try:
        assert "the same ones listed again" in refusal(data, tmp_path).message
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 12 * len(data) + 150 * MIB


def test_names_of_megabytes_are_cut(tmp_path):
    data = convert.capture("first-step")
    name = "N" * 2_000_000
    for event in data["device_traces"][0]:
        event["frames"] = [{"name": name, "filename": name, "line": event["size"] % 1000}]
        event["user_metadata"] = event["compile_context"] = name
    data["external_annotations"] = [{"stage": "START", "name": name, "device": 0, "time_us": 1}]
    (tmp_path / "input").write_bytes(pickle.dumps(data))
    (snapshot,) = read_inputs([str(tmp_path / "input")]).snapshots
    names = {text for frame in snapshot.stacks.frames for text in (frame.filename, frame.name)}
    names |= {*snapshot.devices[0].trace.texts, *(a.name for a in snapshot.annotations)}
    assert name[:4096] + "…" in names
    assert max(map(len, names)) == 4097


def test_deep_nesting_is_harmless(tmp_path):
    deep = b"\x80\x04" + b"]" * 100_000 + b"a" * 99_999 + b"."
    refusal(deep, tmp_path)
    segments = b"\x80\x04}\x8c\x08segments" + b"]" * 100_000 + b"a" * 99_999 + b"s."
    refusal(segments, tmp_path)


def gzip_of_zeros(size: int, head: bytes) -> bytes:
    packer = zlib.compressobj(9, wbits=31)
    out = [packer.compress(head)]
    out += [packer.compress(bytes(MIB)) for _ in range(size // MIB)]
    return b"".join([*out, packer.flush()])


@pytest.mark.parametrize("head", [b"\x80\x04", b'{"segments": [', b"a log\n", b"<html>"])
@pytest.mark.parametrize("wrap", [lambda d: d, convert._zip])
def test_decompression_bombs(head, wrap, tmp_path):
    data = wrap(gzip_of_zeros(300 * MIB, head + b"words that read as text\n" * 4000))
    tracemalloc.start()
    try:
        error = refusal(data, tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "bomb" in error.message
    assert peak < 200 * MIB


def test_a_zip_of_zeros(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.pickle", b"\x80\x04" + bytes(200 * MIB))
    assert "bomb" in refusal(out.getvalue(), tmp_path).message


def test_archives_within_archives(tmp_path):
    data = pickle.dumps(convert.capture("crowded-early"))
    twice = convert._zip(convert._zip(data))
    path = tmp_path / "twice"
    path.write_bytes(twice)
    assert read_inputs([str(path)]).snapshots
    assert "within each other" in refusal(gzip.compress(gzip.compress(gzip.compress(data))), tmp_path).message
    refusal(convert._zip(twice), tmp_path)


def test_zip_members(tmp_path):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("../../etc/\x1b[31mrank3.pickle", pickle.dumps(convert.capture("crowded-early")))
        archive.writestr("evil.pickle", pickle.dumps(Call()))
        archive.writestr("rank3.log", b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.")
    path = tmp_path / "a.zip"
    path.write_bytes(out.getvalue())
    found = read_inputs([str(path)])
    assert [i.kind for i in found.inputs] == ["snapshot", "oom_log"]
    assert found.oom_events[0].rank == 3
    assert [s.what for s in found.skipped] == ["a file of the zip"]
    assert "\x1b" not in found.skipped[0].reason
    assert list(tmp_path.iterdir()) == [path]
    many = io.BytesIO()
    with zipfile.ZipFile(many, "w") as archive:
        for i in range(300):
            archive.writestr(f"{i}.txt", b"hello")
    assert "300 files" in refusal(many.getvalue(), tmp_path).message


def test_limits(tmp_path):
    data = pickle.dumps(convert.capture("shape-bug"))
    for packed in (data, gzip.compress(data), convert._zip(data)):
        assert (
            "limit of 100.00 KiB" in refusal(packed, tmp_path, max_bytes=100 << 10).message or len(packed) > 100 << 10
        )
    sparse = tmp_path / "sparse"
    with sparse.open("wb") as file:
        file.truncate(20 << 30)
    with pytest.raises(OomctlError, match=r"20\.00 GiB, and the limit is 8\.00 GiB"):
        read_inputs([str(sparse)])


@pytest.mark.parametrize(
    "text",
    [
        '{"segments": [' + "[" * 100_000 + "]" * 100_000 + "]}",
        '{"segments": ' + "9" * 10_000 + "}",
        '{"segments": [{"total_size": NaN, "blocks": []}]}',
        '{"segments": [{"device": 0, "total_size": 1e999, "address": Infinity, "blocks": []}]}',
        '{"segments": {"total_size": 3}}',
        '{"segments": [3, null, "x"]}',
        '{"segments": [',
        '[{"segment_type": "large"}]',
    ],
)
def test_json(text, tmp_path):
    refusal(text.encode(), tmp_path)


def zipped(name: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, b"x")
    return out.getvalue()


LOOKS = {
    "a PNG picture": b"\x89PNG\r\n\x1a\n" + bytes(50),
    "an HTML page": b"<!DOCTYPE html><html><body>hello</body></html>",
    "a Python script": b"#!/usr/bin/env python3\nimport torch\nprint(torch.ones(3))\n",
    "a program or library": b"\x7fELF" + bytes(100),
    "an SQLite database": b"SQLite format 3\0" + bytes(100),
    "safetensors": struct.pack("<Q", 100) + b'{"weight": {"dtype": "F32"}}' + bytes(100),
    "a tar archive": b"name".ljust(257, b"\0") + b"ustar\x0000" + bytes(300),
    "Git LFS pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n",
    "empty": b"",
    "of zero bytes only": bytes(3000),
    "no known kind": bytes(range(256)) * 8,
    "protocol 0 or 1": pickle.dumps({"segments": []}, 0),
    "torch checkpoint": zipped("model/data.pkl"),
    "nothing in it is about GPU memory": b"once upon a time\n",
    "damaged gzip": b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"garbage" * 9,
    "gzip data that ends early": gzip.compress(os.urandom(99))[:15],
    "unsupported zip": b"PK\x03\x04" + b"garbage" * 9,
}


@pytest.mark.parametrize("looks", LOOKS)
def test_what_it_looks_like(looks, tmp_path):
    error = refusal(LOOKS[looks], tmp_path)
    assert looks in error.message
    assert error.hint


def test_paths(tmp_path):
    for path, words in (
        (tmp_path, "a directory"),
        (tmp_path / "no\x1b[2Jne", r"no\\x1b\[2Jne: no such file"),
        ("nul\0", "null"),
        ("/dev/null", "empty"),
        ("/dev/zero", "zero bytes only"),
        ("-", "standard input: no standard input"),
    ):
        with pytest.raises(OomctlError, match=words):
            read_inputs([str(path)])
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OomctlError, match="too many levels"):
        read_inputs([str(loop)])
    with pytest.raises(OomctlError, match="no input"):
        read_inputs([])


def test_streams(tmp_path):
    data = gzip.compress(pickle.dumps(convert.capture("crowded-early")))
    found = read_inputs(["-"], stdin=io.BytesIO(data))
    assert (found.inputs[0].path, found.inputs[0].size, len(found.snapshots)) == ("-", len(data), 1)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    if os.fork() == 0:
        pipe.write_bytes(data)
        os._exit(0)
    assert read_inputs([str(pipe)]).inputs[0].sha256 == found.inputs[0].sha256
    os.wait()


def test_reports_are_recognised(tmp_path):
    report = json.dumps({"schema": "oomctl.report/1", "inputs": []})
    page = f"<!doctype html><html><script type='application/json' id=r>{report}</script></html>"
    for text in (report, page):
        path = tmp_path / "report"
        path.write_text(text)
        found = read_inputs([str(path)])
        assert found.inputs[0].kind == "report"
        assert found.reports == ({"schema": "oomctl.report/1", "inputs": []},)


def test_opcodes_of_the_fixtures_are_all_that_is_allowed():
    """Every opcode that is let through is needed by some form of a snapshot, so that the list stays short."""
    from oomctl.sources import pickle_scan

    data = convert.as_version(convert.capture("crowded-early"), "2.14")
    data["allocator_settings"] |= {"x": True, "y": 0.5, "n": None, "long": "x" * 300, "one": {"a": 1}}
    data["device_traces"].append([{"action": "alloc", "pool_id": (1,)}])
    data["segments"][0]["extra"] = [(), (1, 2, 3)]
    used = {"\x95", "."}
    for protocol in (2, 3, 4, 5):
        used |= {op.code for op, _, _ in pickletools.genops(pickle.dumps(data, protocol))}
    used |= {op.code for op, _, _ in pickletools.genops(convert.pickled_by_cpp(data))}
    allowed = {chr(code) for code in range(256) if pickle_scan._LENGTH[code]} | {"."}
    assert allowed <= used
