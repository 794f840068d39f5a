"""Mutated snapshots: bytes that were hit, and objects that no allocator writes."""

from __future__ import annotations

import json
import pickle
import pickletools
import random
import struct
from collections.abc import Callable
from typing import Any

from tests.fuzz import seeds
from tests.fuzz.names import NAMES
from tests.sources import convert

OPCODES = tuple(op.code.encode("latin-1") for op in pickletools.opcodes)
NUMBERS = (
    0, 1, -1, 511, 512, 513, 2**20, 2**31 - 1, 2**31, 2**32, 2**40, 2**44, 2**53, 2**60 - 1, 2**60, 2**62, 2**63 - 1,
    2**63, 2**64 - 1, 2**64, -(2**63), -(2**64), 10**30,
)  # fmt: skip
ODD: tuple[Any, ...] = (
    *NUMBERS, None, True, False, 1.5, -0.0, float("nan"), float("inf"), 1e308, "", "x", "alloc", "oom", "\ud800", b"b",
    [], {}, (), (1, 2), (0, 2**64), [[]], [None], {"frames": []}, {"a": {"b": []}}, "active_allocated", "inactive",
)  # fmt: skip
_NUMERIC = ("addr", "address", "size", "total_size", "allocated_size", "active_size", "requested_size", "stream",
            "device", "time_us", "device_free", "line")  # fmt: skip
_TEXTS = ("name", "filename", "user_metadata", "compile_context", "segment_type", "state", "action")
ACTIONS = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
    "snapshot", "oom", "workspace_snapshot", "nonsense",
)  # fmt: skip


def mutated(rng: random.Random) -> bytes:
    """One snapshot that something happened to."""
    name = seeds.snapshot(rng)
    way = rng.random()
    if way < 0.35:
        return hit(rng, as_bytes(rng, seeds.objects(name)))
    if way < 0.45:
        return hit(rng, seeds.packed()[name])
    if way < 0.5:
        return hit(rng, as_json(seeds.objects(name)))
    tree = seeds.objects(name)
    for _ in range(1 + int(rng.expovariate(0.7))):
        rng.choice(CHANGES)(rng, tree)
    data = written(rng, tree)
    return hit(rng, data) if rng.random() < 0.1 else data


def as_bytes(rng: random.Random, tree: Any) -> bytes:
    if rng.random() < 0.3:
        tree = convert.as_version(tree, rng.choice(convert.VERSIONS))
    return convert.pickled_by_cpp(tree) if rng.random() < 0.2 else pickle.dumps(tree, rng.choice((2, 3, 4, 4, 5)))


def as_json(tree: Any) -> bytes:
    return json.dumps(tree, skipkeys=True, default=str).encode("utf-8", "surrogatepass")


def written(rng: random.Random, tree: Any) -> bytes:
    """Objects as a file of some form."""
    way = rng.random()
    if way < 0.2 and _fits_in_json(tree):
        try:
            return as_json(tree)
        except (ValueError, RecursionError):  # a cycle
            pass
    try:
        data = pickle.dumps(tree, rng.choice((2, 4, 4, 4, 5)))
    except (RecursionError, UnicodeEncodeError):
        return b"\x80\x04"
    if way > 0.95:
        return convert.as_viz_page(data)
    return rng.choice(list(convert.COMPRESSIONS.values()))(data) if way > 0.85 else data


def _fits_in_json(tree: Any) -> bool:
    """Whether it stays of a size that can be written: JSON writes what is shared as often as it is met."""
    waiting, met = [tree], 0
    while waiting and met < 5_000_000:
        item = waiting.pop()
        met += 1
        if isinstance(item, (dict, list, tuple)):
            waiting += item.values() if isinstance(item, dict) else item
    return not waiting


def hit(rng: random.Random, data: bytes) -> bytes:
    """Bytes changed, lost, doubled, inserted, or the end cut off."""
    octets = bytearray(data)
    for _ in range(1 + int(rng.expovariate(0.4))):
        at = rng.randrange(len(octets) + 1)
        way = rng.randrange(9)
        if way <= 1 and at < len(octets):
            octets[at] ^= 1 << rng.randrange(8)
        elif way == 2 and at < len(octets):
            octets[at] = rng.randrange(256)
        elif way == 3:
            octets[at:at] = rng.choice(OPCODES) + rng.choice(
                (b"", rng.randbytes(rng.randrange(9)), b"\xff\xff\xff\x7f")
            )
        elif way == 4:
            del octets[at : at + rng.choice((1, 2, 9, 300, 20_000))]
        elif way == 5:
            octets[at:at] = octets[at : at + rng.choice((1, 9, 300, 20_000))]
        elif way == 6:
            octets[at : at + 4] = struct.pack("<i", rng.choice((-1, 0, 2**31 - 1, 65_536)))
        elif way == 7:
            octets[at : at + 8] = struct.pack("<Q", rng.choice((2**64 - 1, 2**63, 2**40, 0)))
        elif rng.random() < 0.5:
            del octets[at:]
        if not octets:
            break
    return bytes(octets)


def _events(rng: random.Random, tree: dict) -> list:
    traces = [t for t in _list(tree, "device_traces") if isinstance(t, list) and t]
    return rng.choice(traces) if traces else [{}]


def _list(tree: Any, key: str) -> list:
    found = tree.get(key) if isinstance(tree, dict) else None
    return found if isinstance(found, list) else []


def _dicts(rng: random.Random, tree: dict) -> list[dict]:
    """Some segments, blocks, events and frames."""
    segments = [s for s in _list(tree, "segments") if isinstance(s, dict)]
    found = [rng.choice(segments)] if segments else []
    found += [b for s in found for b in _list(s, "blocks")[:3]]
    events = _events(rng, tree)
    at = rng.randrange(len(events))
    found += events[at : at + rng.choice((1, 3, 100))]
    frames = [f for d in found if isinstance(d, dict) for f in _list(d, "frames")[:2]]
    return [d for d in found + frames if isinstance(d, dict)] or [{}]


def _odd_value(rng: random.Random, tree: dict) -> None:
    target = rng.choice(_dicts(rng, tree))
    if target:
        target[rng.choice(list(target))] = rng.choice(ODD)


def _odd_number(rng: random.Random, tree: dict) -> None:
    key, number = rng.choice(_NUMERIC), rng.choice(NUMBERS)
    for target in _dicts(rng, tree):
        if key in target:
            target[key] = number


def _lost_key(rng: random.Random, tree: dict) -> None:
    target = rng.choice(_dicts(rng, tree))
    if target:
        del target[rng.choice(list(target))]


def _lost_key_everywhere(rng: random.Random, tree: dict) -> None:
    rows = _events(rng, tree) if rng.random() < 0.5 else _list(tree, "segments")
    key = rng.choice(list(_first(rows)) or ["none"])
    for row in rows:
        if isinstance(row, dict):
            row.pop(key, None)


def _first(rows: list) -> dict:
    return next((row for row in rows if isinstance(row, dict)), {})


def _hostile_name(rng: random.Random, tree: dict) -> None:
    key, text = rng.choice(_TEXTS), rng.choice(NAMES)
    for target in _dicts(rng, tree):
        if key in target or rng.random() < 0.2:
            target[key] = text


def _hostile_key(rng: random.Random, tree: dict) -> None:
    rng.choice([tree, *_dicts(rng, tree)])[rng.choice((*NAMES, 7, None, 2.5, (1,)))] = rng.choice(ODD)


def _hostile_names_everywhere(rng: random.Random, tree: dict) -> None:
    for event in _events(rng, tree):
        for frame in _list(event, "frames")[:1]:
            if isinstance(frame, dict):
                frame["name"], frame["filename"] = rng.choice(NAMES[:25]), rng.choice(NAMES[:25])
                frame["line"] = rng.choice((1, 2**64 - 1, 0))


def _time(rng: random.Random, tree: dict) -> None:
    events = _events(rng, tree)
    jump = rng.choice((-(10**6), -(10**18), 2**62, 10**9, -1))
    for event in events[rng.randrange(len(events)) :]:
        if isinstance(event, dict) and isinstance(event.get("time_us"), int):
            event["time_us"] += jump


def _order(rng: random.Random, tree: dict) -> None:
    events = _events(rng, tree)
    way = rng.randrange(5)
    at, count = rng.randrange(len(events)), rng.choice((1, 10, 1000))
    if way == 0:
        rng.shuffle(events)
    elif way == 1:
        events.reverse()
    elif way == 2:
        del events[at : at + count]
    elif way == 3:
        events[at:at] = events[at : at + count]
    else:
        part = events[at : at + count]
        del events[at : at + count]
        to = rng.randrange(len(events) + 1)
        events[to:to] = part


def _other_actions(rng: random.Random, tree: dict) -> None:
    events = _events(rng, tree)
    action = rng.choice(ACTIONS)
    for event in rng.sample(events, min(len(events), rng.choice((1, 5, 200)))):
        if isinstance(event, dict):
            event["action"] = action
            if action == "oom":
                event["device_free"] = rng.choice((event.get("size"), 0, 2**40, 2**60 - 1))


def _more_failures(rng: random.Random, tree: dict) -> None:
    events = _events(rng, tree)
    for _ in range(rng.choice((1, 3, 300))):
        at = rng.randrange(len(events) + 1)
        size, free = rng.choice(NUMBERS), rng.choice(NUMBERS)
        events.insert(at, {"action": "oom", "size": size, "device_free": free, "stream": 0, "time_us": 5, "frames": []})


def _scaled(rng: random.Random, tree: dict) -> None:
    """Everything a thousand or a million times as large, which agrees with itself."""
    factor = rng.choice((1000, 10**6, 2**20, 2**30))
    for segment in _list(tree, "segments"):
        for row in [segment, *_list(segment, "blocks")]:
            _multiply(row, factor)
    for trace in _list(tree, "device_traces"):
        for event in trace if isinstance(trace, list) else ():
            _multiply(event, factor)


def _multiply(row: Any, factor: int) -> None:
    for key in ("total_size", "allocated_size", "active_size", "requested_size", "size", "address", "addr"):
        if isinstance(row, dict) and isinstance(row.get(key), int):
            row[key] *= factor


def _overlap(rng: random.Random, tree: dict) -> None:
    segments = [s for s in _list(tree, "segments") if isinstance(s, dict)]
    if len(segments) < 2:
        return
    one, other = rng.sample(segments, 2)
    if rng.random() < 0.5:
        one["address"] = other.get("address")
    blocks = _list(one, "blocks")
    if blocks:
        blocks.insert(rng.randrange(len(blocks)), dict(rng.choice([b for b in blocks if isinstance(b, dict)] or [{}])))


def _states(rng: random.Random, tree: dict) -> None:
    state = rng.choice(("inactive", "active_allocated", "active_pending_free", "active_awaiting_free"))
    for segment in _list(tree, "segments"):
        for block in _list(segment, "blocks"):
            if isinstance(block, dict) and rng.random() < 0.5:
                block["state"] = state


def _devices(rng: random.Random, tree: dict) -> None:
    for segment in _list(tree, "segments"):
        if isinstance(segment, dict) and rng.random() < 0.5:
            segment["device"] = rng.choice((0, 1, 7, 1023, 1024, -1, 2**31))
    traces = _list(tree, "device_traces")
    traces[0:0] = [[] for _ in range(rng.choice((0, 1, 3, 2000)))]


def _pools(rng: random.Random, tree: dict) -> None:
    rows = [*_list(tree, "segments"), *_events(rng, tree)]
    for row in rows:
        if isinstance(row, dict) and rng.random() < 0.5:
            row["segment_pool_id"] = row["pool_id"] = rng.choice(((0, 0), (0, 1), (2**63, 0), [1, 0], (1,), None))


def _settings(rng: random.Random, tree: dict) -> None:
    confs = (
        "expandable_segments:True",
        "max_split_size_mb:0",
        "roundup_power2_divisions:[256:1,>:9]",
        "a:b,:,[",
        *NAMES,
    )
    settings = tree.get("allocator_settings")
    if isinstance(settings, dict):
        key = rng.choice([*settings, "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
        settings[key] = rng.choice((*confs, *ODD))
    else:
        tree["allocator_settings"] = rng.choice(ODD)


def _annotations(rng: random.Random, tree: dict) -> None:
    tree["external_annotations"] = [
        {
            "name": rng.choice(NAMES),
            "stage": rng.choice(("START", "END", "")),
            "device": 0,
            "time_us": rng.choice(NUMBERS),
        }
        for _ in range(rng.choice((1, 50)))
    ]


def _shared(rng: random.Random, tree: dict) -> None:
    """One object in two places, or in itself."""
    one, other = rng.choice(_dicts(rng, tree)), rng.choice([tree, *_dicts(rng, tree)])
    other[rng.choice(list(other) or ["x"])] = rng.choice((one, tree.get("segments"), [one, one], other))


def _deep(rng: random.Random, tree: dict) -> None:
    nest: Any = []
    for _ in range(rng.choice((10, 300))):
        nest = rng.choice(([nest], {"frames": nest}))
    rng.choice([tree, *_dicts(rng, tree)])[rng.choice(("frames", "blocks", "segments", "extra", "name"))] = nest


def _many(rng: random.Random, tree: dict) -> None:
    key = rng.choice(("segments", "device_traces"))
    rows = _list(tree, key)
    if rows:
        tree[key] = rows * rng.choice((2, 3, 20)) if len(rows) < 1000 else rows


def _formatted(rng: random.Random, tree: dict) -> None:
    """Stacks as text, where a backward pass or generated code has them."""
    names = [name[:200] for name in rng.sample(NAMES, 9)]
    lines = [f'  File "{name}", line {rng.choice(NUMBERS)}, in {rng.choice(names)}\n' for name in names]
    stack = lines * rng.choice((1, 1, 40))
    for target in _dicts(rng, tree)[:20]:
        if "line" in target:
            target["fx_original_trace"] = rng.choice(("".join(stack), *ODD))
        else:
            target["forward_frames"] = rng.choice((stack, stack, *ODD))


def _top(rng: random.Random, tree: dict) -> None:
    tree[rng.choice(("segments", "device_traces", "allocator_settings", "host_segments"))] = rng.choice(ODD)


CHANGES: tuple[Callable[[random.Random, dict], None], ...] = (
    _odd_value, _odd_value, _odd_number, _odd_number, _lost_key, _lost_key_everywhere, _hostile_name, _hostile_key,
    _hostile_names_everywhere, _time, _order, _order, _other_actions, _other_actions, _more_failures, _scaled, _overlap,
    _states, _devices, _pools, _settings, _annotations, _shared, _deep, _many, _formatted, _top,
)  # fmt: skip
