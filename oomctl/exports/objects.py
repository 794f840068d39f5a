"""A snapshot as the objects that torch writes, whole or a window of its events.

The keys are those of the recording: what it lacks (a clock before torch 2.2, pools of events before 2.12) is not made
up. The segments of a window are the state right after its last event.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from oomctl.analysis.lives import lives
from oomctl.analysis.moment import heap_at
from oomctl.model.alloc_conf import conf_from_recorded
from oomctl.model.snapshot import Action, Blocks, BlockState, DeviceSnapshot, Segments, Snapshot, Trace

STATES: Final = {
    BlockState.INACTIVE: "inactive",
    BlockState.ACTIVE_ALLOCATED: "active_allocated",
    BlockState.ACTIVE_PENDING_FREE: "active_pending_free",
}
Objects = dict[str, Any]


def as_objects(snapshot: Snapshot, window: dict[int, range] | None = None) -> Objects:
    """The dict that `torch.cuda.memory._dump_snapshot` would pickle.

    Args:
        snapshot: What was read.
        window: Events to keep by device ordinal; devices that are not in it are left out. None keeps everything.
    """
    stacks = _Stacks(snapshot)
    segments: list[Objects] = []
    traces: list[list[Objects]] = []
    for device in snapshot.devices:
        traces += [[] for _ in range(len(traces), device.index + 1)]
        if window is not None and device.index not in window:
            continue
        kept = window[device.index] if window is not None else range(0 if device.trace is None else len(device.trace))
        segments += _segments(snapshot, device, kept, stacks)
        if device.trace is not None:
            traces[device.index] = _events(device, device.trace, kept, stacks)
    data: Objects = {"segments": segments, "device_traces": traces}
    if snapshot.settings is not None:
        data["allocator_settings"] = dict(snapshot.settings.values)
    if snapshot.annotations or (snapshot.torch.low or (0, 0)) >= (2, 5):
        times = _times(snapshot, window)
        data["external_annotations"] = [
            {"name": one.name, "stage": one.stage, "device": one.device, "time_us": one.time_us}
            for one in snapshot.annotations
            if times is None or times[0] <= one.time_us <= times[1]
        ]
    return data


def _times(snapshot: Snapshot, window: dict[int, range] | None) -> tuple[int, int] | None:
    """The first and the last microsecond of a window; None where all is kept or there is no clock."""
    found = []
    for device in snapshot.devices if window is not None else ():
        kept = (window or {}).get(device.index)
        if kept and device.trace is not None and device.trace.time_us is not None:
            found += [int(device.trace.time_us[kept[0]]), int(device.trace.time_us[kept[-1]])]
    return (min(found), max(found)) if found else None


class _Stacks:
    """Frames as lists of dicts; a stack is one object however often it is used, and so takes little room."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._stacks = snapshot.stacks
        self._frames = [{"filename": f.filename, "line": f.line, "name": f.name} for f in snapshot.stacks.frames]
        self._made: dict[int, list[Objects]] = {}

    def __call__(self, stack: int) -> list[Objects]:
        found = self._made.get(stack)
        if found is None:
            found = self._made[stack] = [self._frames[i] for i in self._stacks.ids(stack)]
        return found


def _events(device: DeviceSnapshot, trace: Trace, kept: range, stacks: _Stacks) -> list[Objects]:
    part = slice(kept.start, kept.stop)
    names = [action.name.lower() for action in Action]
    columns = (trace.action, trace.address, trace.size, trace.stream, trace.stack)
    events = []
    for action, address, size, stream, stack in zip(*(column[part].tolist() for column in columns), strict=True):
        event: Objects = {"action": names[action], "addr": address, "size": size, "stream": stream}
        event["frames"] = stacks(stack)
        events.append(event)
    if trace.time_us is not None:
        for event, time in zip(events, trace.time_us[part].tolist(), strict=True):
            event["time_us"] = time
    for key, column in (("compile_context", trace.context), ("user_metadata", trace.metadata)):
        if column is not None:
            for event, text in zip(events, column[part].tolist(), strict=True):
                event[key] = trace.texts[text] if text >= 0 else ("N/A" if key == "compile_context" else "")
    if trace.pool is not None:
        for event, pool in zip(events, trace.pool[part].tolist(), strict=True):
            if pool >= 0:
                event["pool_id"] = device.pools[pool]
    for index, free in trace.device_free.items():
        if index in kept:
            event = events[index - kept.start]
            del event["addr"]
            event["device_free"] = free
    return events


def _segments(snapshot: Snapshot, device: DeviceSnapshot, kept: range, stacks: _Stacks) -> list[Objects]:
    trace = device.trace
    if trace is None or kept.stop == len(trace):
        return _written(device, device.segments, device.blocks, stacks)
    conf = conf_from_recorded(snapshot.settings, snapshot.torch.high or (2, 11))
    found = lives(device, conf.roundup_power2_divisions)
    heap = heap_at(device, found, kept.stop - 1, conf.max_split_size, conf.max_non_split_rounding)
    holes = len(heap.hole_size)
    none = np.full(holes, -1, np.int32)
    address = np.concatenate([found.address[heap.live], heap.hole_address])
    order = np.argsort(address, kind="stable")
    state = np.where(heap.live_pending, BlockState.ACTIVE_PENDING_FREE, BlockState.ACTIVE_ALLOCATED)
    requested = np.minimum(found.requested[heap.live], heap.live_size)
    blocks = Blocks(
        address[order],
        np.concatenate([heap.live_size, heap.hole_size])[order],
        np.concatenate([requested, np.zeros(holes, np.int64)])[order],
        np.concatenate([state, np.full(holes, BlockState.INACTIVE)])[order].astype(np.uint8),
        np.concatenate([found.stack[heap.live], none])[order],
    )
    segment = np.concatenate([heap.live_segment, heap.hole_segment])[order]
    first = np.searchsorted(segment, np.arange(len(heap.size) + 1))
    segments = Segments(
        heap.address, heap.size, heap.stream, heap.pool, heap.is_large, heap.is_expandable,
        np.full(len(heap.size), -1, np.int32), first,
    )  # fmt: skip
    return _written(device, segments, blocks, stacks)


def _written(device: DeviceSnapshot, segments: Segments, blocks: Blocks, stacks: _Stacks) -> list[Objects]:
    rows = zip(
        blocks.address.tolist(), blocks.size.tolist(), blocks.requested.tolist(), blocks.state.tolist(),
        blocks.stack.tolist(), strict=True,
    )  # fmt: skip
    made = [
        {"address": address, "size": size, "requested_size": requested, "state": STATES[BlockState(state)],
         "frames": stacks(stack)}
        for address, size, requested, state, stack in rows
    ]  # fmt: skip
    found = []
    for i in range(len(segments)):
        inside = made[int(segments.first_block[i]) : int(segments.first_block[i + 1])]
        held = [b for b in inside if b["state"] == "active_allocated"]
        active = [b for b in inside if b["state"] != "inactive"]
        found.append(
            {
                "device": device.index,
                "address": int(segments.address[i]),
                "total_size": int(segments.size[i]),
                "allocated_size": sum(b["size"] for b in held),
                "active_size": sum(b["size"] for b in active),
                "requested_size": sum(b["requested_size"] for b in active),
                "stream": int(segments.stream[i]),
                "segment_type": "large" if segments.is_large[i] else "small",
                "segment_pool_id": device.pools[int(segments.pool[i])],
                "is_expandable": bool(segments.is_expandable[i]),
                "frames": stacks(int(segments.stack[i])),
                "blocks": inside,
            }
        )
    return found
