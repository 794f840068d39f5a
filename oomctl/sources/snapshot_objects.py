"""Decoded Python objects (dicts, lists, tuples, numbers, strings) into a `Snapshot`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from oomctl.errors import OomctlError
from oomctl.model.common import Skipped
from oomctl.model.snapshot import (
    DEFAULT_POOL,
    AllocatorSettings,
    Annotation,
    DeviceSnapshot,
    Snapshot,
)
from oomctl.sources.consistency import checked
from oomctl.sources.interning import Codes, StackInterner, clean, clipped
from oomctl.sources.origin import Keys, backend_of, torch_range
from oomctl.sources.segment_columns import BLOCK_KEYS, MAX_DEVICES, SEGMENT_KEYS, SegmentReader
from oomctl.sources.trace_columns import KNOWN_KEYS, TraceBuilder

_TOP_KEYS: Final = frozenset(
    ("segments", "device_traces", "allocator_settings", "external_annotations", "host_segments", "host_traces")
)
_LEAST: Final = 16
"""Bytes that a segment, block or event takes in a pickle at the very least, even if all its texts are shared."""
_HINT: Final = "give the file that torch.cuda.memory._dump_snapshot() wrote"
_MAX_NAMES: Final = 100


class Traces:
    """Builders of traces by the list object that held the events, so that events can come in before all is read."""

    def __init__(self) -> None:
        self.stacks = StackInterner()
        self._builders: dict[int, tuple[list[Any], TraceBuilder]] = {}

    def take(self, events: list[Any]) -> None:
        """Moves the events out of a list, which stays the name of its trace."""
        _, builder = self._builders.setdefault(
            id(events), (events, TraceBuilder(self.stacks, Codes({DEFAULT_POOL: 0})))
        )
        builder.add(events)
        for event in events:
            if type(event) is dict:
                event.clear()  # the decoder still holds the dict
        events.clear()

    def of(self, events: Any) -> TraceBuilder:
        """The builder of a list with all its events in."""
        if type(events) is not list:
            return TraceBuilder(self.stacks, Codes({DEFAULT_POOL: 0}))
        if events or id(events) not in self._builders:
            self.take(events)
        return self._builders[id(events)][1]


def snapshot_from_objects(data: Any, traces: Traces | None = None, cut: str = "", size: int | None = None) -> Snapshot:
    """Builds the model from what a pickle or JSON file holds.

    Args:
        data: A dict with `segments` and `device_traces` (torch >= 2.0) or a bare list of segments (<= 1.13). It is
            consumed: the lists and dicts in it are emptied on the way.
        traces: Events that were taken out of it already.
        cut: Where a damaged file breaks off: "segments", "traces", "later", or "" for a whole one.
        size: Bytes of the file, which bound what may come out of it; None where no part of it can be listed twice.

    Raises:
        OomctlError: The objects are no memory snapshot, or contradict each other.
    """
    bare = type(data) is list
    top: dict[str, Any] = {"segments": data} if bare else data
    if type(top) is not dict or type(top.get("segments")) is not list:
        raise OomctlError("not a memory snapshot: it holds no segments", _HINT)
    if top["segments"] and not any(type(s) is dict and "total_size" in s for s in top["segments"]):
        raise OomctlError("not a memory snapshot: its segments are none", _HINT)
    traces = traces or Traces()
    skipped: list[Skipped] = []
    recorded = top.get("device_traces") or []
    if type(recorded) is not list:
        recorded = []
        skipped.append(Skipped("traces", "they are no list"))
    listed = sum(len(events) for events in recorded if type(events) is list)
    _check_room(top["segments"], listed, size)
    builders = {i: b for i, events in enumerate(recorded) if (b := traces.of(events)).count}
    _check_room([], sum(b.count for b in builders.values()), size)
    if beyond := [i for i in builders if i >= MAX_DEVICES]:
        skipped.append(Skipped(f"traces of {len(beyond):,} devices", f"torch has no device {beyond[0]}"))
        for index in beyond:
            del builders[index]
    devices, reader = _devices(top["segments"], builders, traces, skipped)
    skipped += reader.skipped()
    for builder in builders.values():
        skipped += builder.skipped()
    if traces.stacks.unreadable:
        skipped.append(Skipped("stacks", f"{traces.stacks.unreadable} frames are damaged"))
    if traces.stacks.without_origin:
        what = f"those of {traces.stacks.without_origin:,} stacks are left out: there are too many of them"
        skipped.append(Skipped("forward and original frames", what))
    settings = _settings(top.get("allocator_settings"), skipped)
    event_keys = frozenset().union(*(b.keys for b in builders.values()))
    keys = Keys(
        top=None if bare or cut else frozenset(k for k in top if type(k) is str),
        segments=frozenset(reader.segment_keys),
        blocks=frozenset(reader.block_keys),
        events=event_keys if builders else None,
        settings=None if settings is None else frozenset(settings.values),
    )
    if reader.unreadable and not builders and not any(len(d.segments) for d in devices):
        raise OomctlError("not a memory snapshot: no segment in it can be read", _HINT)
    backend = backend_of(devices, traces.stacks)
    if cut in ("segments", "traces"):  # the last events are missing: the others do not lead to the segments
        devices = tuple(d if d.trace is None else replace(d, trace=None, partial_trace=d.trace) for d in devices)
    devices = _consistent(devices, skipped)
    if top.get("host_segments") or top.get("host_traces"):
        skipped.append(Skipped("pinned host memory", "host_segments and host_traces are recorded but not analysed"))
    return Snapshot(
        devices=devices,
        stacks=traces.stacks.table(),
        settings=settings,
        annotations=_annotations(top.get("external_annotations"), skipped),
        torch=torch_range(keys, backend),
        backend=backend,
        skipped=tuple(skipped),
        unknown_keys=_unknown(keys, traces.stacks),
    )


def _check_room(segments: list[Any], events: int, size: int | None) -> None:
    """Refuses a file that lists the same blocks or events again and again: few bytes could fill any memory.

    Raises:
        OomctlError: There are more of them than the file has room for.
    """
    if size is None:
        return
    lists = (s.get("blocks") for s in segments if type(s) is dict)
    rows = events + sum(1 + (len(blocks) if type(blocks) is list else 0) for blocks in lists)
    if rows > size // _LEAST:
        raise OomctlError(
            f"not a memory snapshot: {rows:,} blocks and events in {size:,} bytes are the same ones listed again", _HINT
        )


def _devices(
    segments: list[Any], builders: dict[int, TraceBuilder], traces: Traces, skipped: list[Skipped]
) -> tuple[tuple[DeviceSnapshot, ...], SegmentReader]:
    reader = SegmentReader(traces.stacks)
    by_device: dict[int, list[dict[str, Any]]] = {}
    for segment in segments:
        index = reader.device_of(segment)
        if index is not None:
            by_device.setdefault(index, []).append(segment)
    devices = []
    for index in sorted(by_device.keys() | builders.keys()):
        builder = builders.get(index)
        pools = Codes({DEFAULT_POOL: 0}) if builder is None else builder.pools
        rows, blocks = reader.read(by_device.get(index, []), pools)
        trace = None if builder is None else builder.finish()
        devices.append(DeviceSnapshot(index, rows, blocks, tuple(pools), trace))
    return tuple(devices), reader


def _consistent(devices: tuple[DeviceSnapshot, ...], skipped: list[Skipped]) -> tuple[DeviceSnapshot, ...]:
    kept = []
    for device in devices:
        sound, found = checked(device)
        kept.append(sound)
        skipped += found
    return tuple(kept)


def _settings(value: Any, skipped: list[Skipped]) -> AllocatorSettings | None:
    if value is None:
        return None
    if type(value) is not dict:
        skipped.append(Skipped("allocator settings", "they are no dict"))
        return None
    values: dict[str, object] = {}
    for key, setting in value.items():
        if type(key) is not str:
            continue
        if type(setting) is dict:
            values[clean(key)] = {
                clean(k): v for k, v in setting.items() if type(k) is str and type(v) in (int, float, bool)
            }
        elif type(setting) in (int, float, bool):
            values[clean(key)] = setting
        elif type(setting) is str:
            values[clean(key)] = clean(setting)
        else:
            skipped.append(Skipped("allocator settings", f"{clean(key)[:60]} is of no known type"))
    conf = values.get("PYTORCH_CUDA_ALLOC_CONF", values.get("PYTORCH_ALLOC_CONF"))
    return AllocatorSettings(conf if isinstance(conf, str) else None, values)


def _annotations(value: Any, skipped: list[Skipped]) -> tuple[Annotation, ...]:
    if not value:
        return ()
    if type(value) is not list:
        skipped.append(Skipped("annotations", "they are no list"))
        return ()
    found = []
    for item in value:
        try:
            name, stage, device, time = item["name"], item["stage"], item["device"], item["time_us"]
        except (TypeError, KeyError, IndexError):
            continue
        if type(name) is str and type(stage) is str and type(device) is int and type(time) is int:
            found.append(Annotation(clean(clipped(name)), clean(clipped(stage)), device, time))
    if len(found) < len(value):
        skipped.append(Skipped("annotations", f"{len(value) - len(found)} of {len(value)} are damaged"))
    return tuple(found)


def _unknown(keys: Keys, stacks: StackInterner) -> tuple[str, ...]:
    names = {str(k) for k in (keys.top or frozenset()) - _TOP_KEYS}
    names |= {f"segments[].{k}" for k in keys.segments - SEGMENT_KEYS}
    names |= {f"segments[].blocks[].{k}" for k in keys.blocks - BLOCK_KEYS}
    names |= {f"device_traces[][].{k}" for k in (keys.events or frozenset()) - KNOWN_KEYS}
    return tuple(sorted(clean(n)[:100] for n in names | stacks.unknown_keys)[:_MAX_NAMES])
