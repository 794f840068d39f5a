"""Turns a real capture into the forms that other torch versions and other allocators write.

Captured for the fixtures was torch 2.11 on CUDA only. The other forms are converted from it by the keys and values
that each version adds or leaves out; what a version records that 2.11 does not (pool ids of events, settings of 2.13,
pinned memory of 2.14, the padding of torch_npu, the high addresses of XPU) is filled in by its rule, not captured.
"""

from __future__ import annotations

import base64
import bz2
import copy
import gzip
import io
import json
import lzma
import pickle
import traceback
import zipfile
from pathlib import Path

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"
VERSIONS = ("1.13", "2.0", "2.1", "2.2", "2.3", "2.5", "2.8", "2.9", "2.11", "2.12", "2.13", "2.14")
RANGES = {
    "1.13": "1.13",
    "2.0": "2.0",
    "2.1": "2.1",
    "2.2": "2.2",
    "2.3": "2.3-2.4",
    "2.5": "2.5-2.7",
    "2.8": "2.8",
    "2.9": "2.9",
    "2.11": "2.10-2.11",
    "2.12": "2.12",
    "2.13": ">=2.13",
    "2.14": ">=2.14",
}
"""What the keys of each form prove."""
_EVENT_KEYS = {"time_us": (2, 2), "compile_context": (2, 8), "user_metadata": (2, 10)}


def capture(name: str) -> dict:
    """The objects of a fixture (recorded for this project, so the plain decoder may read it)."""
    return pickle.loads(gzip.decompress((CAPTURES / name / "snapshot.pickle.gz").read_bytes()))


def as_version(objects: dict, version: str) -> object:
    """A capture of torch 2.11 as another version writes it."""
    data = copy.deepcopy(objects)
    number = tuple(map(int, version.split(".")))
    for segment in data["segments"]:
        _segment(segment, number)
    if number < (2, 0):
        return data["segments"]
    pools = sorted((s["address"], s["address"] + s["total_size"], s["segment_pool_id"]) for s in objects["segments"])
    for trace in data["device_traces"]:
        for event in trace:
            for key, since in _EVENT_KEYS.items():
                if number < since:
                    event.pop(key, None)
            if number >= (2, 12):
                at = event.get("addr", 0)
                event["pool_id"] = next((pool for low, high, pool in pools if low <= at < high), (0, 0))
    _settings(data, number)
    if number < (2, 5):
        data.pop("external_annotations", None)
    if number >= (2, 14):
        data["host_segments"] = [{"address": 4096, "total_size": 4096, "blocks": []}]
        data["host_traces"] = [{"action": "alloc", "addr": 4096, "size": 4096}]
    return data


def _segment(segment: dict, number: tuple[int, ...]) -> None:
    if number < (2, 1):
        for key in ("segment_pool_id", "is_expandable", "frames"):
            segment.pop(key, None)
    if number < (2, 0):
        segment.pop("requested_size", None)
    for block in segment["blocks"]:
        if number < (2, 1):
            live = block["state"] != "inactive"
            entry = {"addr": block.pop("address"), "real_size": block["requested_size"], "frames": block.pop("frames")}
            block["history"] = [entry] if live else []
        if number < (2, 0):
            block.pop("requested_size", None)


def _settings(data: dict, number: tuple[int, ...]) -> None:
    if number < (2, 3):
        data.pop("allocator_settings", None)
        return
    if number < (2, 9):
        data["allocator_settings"].pop("graph_capture_record_stream_reuse", None)
    if number >= (2, 13):
        data["allocator_settings"] |= {"max_cached_size": -1, "max_round_threshold": 0}


def as_npu(objects: dict) -> dict:
    """As torch_npu writes it: its keys, its extra event, and small blocks that hold their request and 32 bytes."""
    data = as_version(objects, "2.1")
    assert isinstance(data, dict)
    for segment in data["segments"]:
        for block in segment["blocks"]:
            if segment["segment_type"] == "small" and block["state"] != "inactive":
                block["requested_size"] = block["size"] - 512 if block["size"] > 512 else 480
    data["device_traces"][0].append({"action": "workspace_snapshot", "addr": 0, "size": 0, "stream": 0})
    return data


def as_xpu(objects: dict) -> dict:
    """As the XPU allocator writes it: addresses past 2^63."""
    data = copy.deepcopy(objects)
    high = 1 << 63
    for segment in data["segments"]:
        segment["address"] += high
        for block in segment["blocks"]:
            block["address"] += high
    for trace in data["device_traces"]:
        for event in trace:
            if event.get("addr"):
                event["addr"] += high
    return data


def with_forward(objects: dict, stack: list[tuple[str, int, str, str]]) -> dict:
    """Allocations of torch's autograd threads, which have no Python frames of their own, in anomaly mode (2.11).

    The texts are traceback's own; where torch keeps them has not been seen in a capture yet.
    """
    data = as_version(objects, "2.14")
    blocks = [b for segment in data["segments"] for b in segment["blocks"] if b["state"] != "inactive"]
    for item in (*data["device_traces"][0], *blocks):
        item.update(frames=[], forward_frames=traceback.format_list(stack))
    return data


def on_devices(objects: dict, count: int) -> dict:
    """The same memory on several devices, each in its own list, the first one empty as on a machine's unused card."""
    data = {**objects, "segments": [], "device_traces": [[]]}
    for device in range(1, count):
        part = copy.deepcopy(objects)
        for segment in part["segments"]:
            segment["device"] = device
        data["segments"] += part["segments"]
        data["device_traces"] += part["device_traces"]
    return data


def pickled_by_cpp(data: object) -> bytes:
    """Protocol 2 without a memo of containers, as torch's C++ pickler writes it."""
    out = io.BytesIO()
    pickler = pickle.Pickler(out, protocol=2)
    pickler.fast = True
    pickler.dump(data)
    return out.getvalue()


def as_viz_page(data: bytes) -> bytes:
    """A page as `_memory_viz.py trace_plot` writes it, its scripts left out."""
    embedded = json.dumps([{"name": "snapshot.pickle", "base64": base64.b64encode(data).decode()}])
    return b"<!DOCTYPE html>\n<html><head></head><body><script>init(" + embedded.encode() + b")</script></body></html>"


def _zip(data: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._snapshot.pickle", b"\0\5\x16\7")
        archive.writestr("dump/", b"")
        archive.writestr("dump/snapshot.pickle", data)
    return out.getvalue()


def _zstd(data: bytes) -> bytes:
    try:
        from compression import zstd
    except ImportError:
        import zstandard

        return zstandard.ZstdCompressor().compress(data)
    return zstd.compress(data)


COMPRESSIONS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": _zstd,
    "zip": _zip,
    "gzip, two members": lambda data: gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :]),
    "gzip in zip": lambda data: _zip(gzip.compress(data)),
}
