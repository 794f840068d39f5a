"""Decoded Python objects (dicts, lists, tuples, numbers, strings) into a `Snapshot`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from oomctl.errors import OomctlError
from oomctl.model.common import VersionRange
from oomctl.model.snapshot import (
    DEFAULT_POOL,
    Action,
    AllocatorSettings,
    Annotation,
    Blocks,
    BlockState,
    DeviceSnapshot,
    PoolId,
    Segments,
    Snapshot,
    Trace,
)
from oomctl.model.stacks import NO_STACK, Frame, StackTable

_ACTIONS = {a.name.lower(): int(a) for a in Action}
_STATES = {
    "active_allocated": int(BlockState.ACTIVE_ALLOCATED),
    "active_pending_free": int(BlockState.ACTIVE_PENDING_FREE),
    "active_awaiting_free": int(BlockState.ACTIVE_PENDING_FREE),
    "inactive": int(BlockState.INACTIVE),
}


class _StackBuilder:
    """Interns frames lists by identity first (they are shared objects in a pickle), then by content."""

    def __init__(self) -> None:
        self.frames: dict[Frame, int] = {}
        self.by_frame_id: dict[int, int] = {}
        self.by_list_id: dict[int, int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}

    def add(self, frames: list[dict[str, Any]] | None) -> int:
        if not frames:
            return NO_STACK
        known = self.by_list_id.get(id(frames))
        if known is None:
            key = tuple(map(self._frame, frames))
            known = self.stacks.setdefault(key, len(self.stacks))
            self.by_list_id[id(frames)] = known
        return known

    def _frame(self, frame: dict[str, Any]) -> int:
        known = self.by_frame_id.get(id(frame))
        if known is None:
            value = Frame(str(frame["filename"]), int(frame["line"]), str(frame["name"]))
            known = self.frames.setdefault(value, len(self.frames))
            self.by_frame_id[id(frame)] = known
        return known

    def table(self) -> StackTable:
        offsets = np.zeros(len(self.stacks) + 1, np.int64)
        np.cumsum([len(s) for s in self.stacks], out=offsets[1:])
        ids = np.fromiter((i for s in self.stacks for i in s), np.int32, int(offsets[-1]))
        return StackTable(tuple(self.frames), offsets, ids)


class _Codes(dict[Any, int]):
    """Value -> code, in order of first use."""

    def code(self, value: Any) -> int:
        return self.setdefault(value, len(self))


def snapshot_from_objects(data: Any) -> Snapshot:
    """Builds the model from what a pickle or JSON file holds.

    Args:
        data: A dict with `segments` and `device_traces` (torch >= 2.0) or a bare list of segments (<= 1.13).

    Raises:
        OomctlError: The objects are no memory snapshot.
    """
    if isinstance(data, list):
        data = {"segments": data}
    if not isinstance(data, dict) or "segments" not in data:
        raise OomctlError("not a memory snapshot: no segments in it")
    stacks = _StackBuilder()
    by_device: dict[int, list[dict[str, Any]]] = {}
    for segment in data["segments"]:
        by_device.setdefault(int(segment["device"]), []).append(segment)
    traces = data.get("device_traces") or []
    devices = []
    for index in sorted(by_device.keys() | {i for i, t in enumerate(traces) if t}):
        pools = _Codes({DEFAULT_POOL: 0})
        segments, blocks = _segments(by_device.get(index, []), pools, stacks)
        events = traces[index] if index < len(traces) else []
        trace = _trace(events, pools, stacks) if events else None
        devices.append(DeviceSnapshot(index, segments, blocks, tuple(pools), trace))
    settings = data.get("allocator_settings")
    return Snapshot(
        devices=tuple(devices),
        stacks=stacks.table(),
        settings=None if settings is None else AllocatorSettings(settings.get("PYTORCH_CUDA_ALLOC_CONF"), settings),
        annotations=tuple(
            Annotation(str(a["name"]), str(a["stage"]), int(a["device"]), int(a["time_us"]))
            for a in data.get("external_annotations") or []
        ),
        torch=VersionRange(),
        backend="cuda",
        skipped=(),
        unknown_keys=(),
    )


def _pool(value: Any) -> PoolId:
    return (int(value[0]), int(value[1]))


def _segments(segments: Iterable[dict[str, Any]], pools: _Codes, stacks: _StackBuilder) -> tuple[Segments, Blocks]:
    segs = sorted(segments, key=lambda s: int(s["address"]))
    rows, blocks, first = [], [], [0]
    for s in segs:
        address = int(s["address"])
        rows.append(
            (
                address,
                int(s["total_size"]),
                int(s["stream"]),
                pools.code(_pool(s.get("segment_pool_id", DEFAULT_POOL))),
                s["segment_type"] == "large",
                bool(s.get("is_expandable", False)),
                stacks.add(s.get("frames")),
            )
        )
        for b in s["blocks"]:
            size, state = int(b["size"]), _STATES[b["state"]]
            history = b.get("history")
            frames = history[0].get("frames") if history else b.get("frames")
            requested = 0 if state == BlockState.INACTIVE else int(b.get("requested_size", size))
            blocks.append((int(b.get("address", address)), size, requested, state, stacks.add(frames)))
            address += size
        first.append(len(blocks))

    def columns(table: list[tuple[Any, ...]], dtypes: tuple[str, ...]) -> list[Any]:
        return [np.array([row[i] for row in table], dtype) for i, dtype in enumerate(dtypes)]

    return (
        Segments(*columns(rows, ("u8", "i8", "u8", "i4", "?", "?", "i4")), np.array(first, np.int64)),
        Blocks(*columns(blocks, ("u8", "i8", "i8", "u1", "i4"))),
    )


def _trace(events: list[dict[str, Any]], pools: _Codes, stacks: _StackBuilder) -> Trace:
    n = len(events)
    texts = _Codes()
    first = events[0]

    def column(key: str, dtype: str, default: int = 0) -> Any:
        return np.fromiter((e.get(key, default) for e in events), dtype, n)

    def text_column(key: str) -> Any:
        if key not in first:
            return None
        return np.fromiter(
            (texts.code(v) if (v := e.get(key)) not in (None, "", "N/A") else -1 for e in events), "i4", n
        )

    return Trace(
        action=np.fromiter((_ACTIONS.get(e["action"], int(Action.UNKNOWN)) for e in events), "u1", n),
        address=column("addr", "u8"),
        size=column("size", "i8"),
        stream=column("stream", "u8"),
        stack=np.fromiter((stacks.add(e.get("frames")) for e in events), "i4", n),
        time_us=column("time_us", "i8") if "time_us" in first else None,
        pool=None
        if "pool_id" not in first
        else np.fromiter((pools.code(_pool(e["pool_id"])) if "pool_id" in e else -1 for e in events), "i4", n),
        context=text_column("compile_context"),
        metadata=text_column("user_metadata"),
        texts=tuple(texts),
        device_free={i: int(e["device_free"]) for i, e in enumerate(events) if e["action"] == "oom"},
    )
