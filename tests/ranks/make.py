"""Jobs of many ranks, made of one recorded run: each with clocks of its own, some with a planted leak or a failure."""

from __future__ import annotations

import copy
import gzip
import pickle
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

CAPTURES = Path(__file__).resolve().parents[2] / "fixtures" / "captures"
MIB = 1 << 20
LEAK = {"filename": "/app/replay.py", "line": 12, "name": "remember"}


@cache
def recorded(name: str = "healthy-steady") -> Any:
    return pickle.loads(gzip.decompress((CAPTURES / name / "snapshot.pickle.gz").read_bytes()))


def rank(
    *,
    name: str = "healthy-steady",
    later_us: int = 0,
    oom_after_us: int | None = None,
    leak: int = 0,
    each: int = 16 * MIB,
) -> Any:
    """A snapshot like the recorded one.

    Args:
        name: The recorded run.
        later_us: Added to all its clocks.
        oom_after_us: Ends in a failure so long after its last event, or None.
        leak: Blocks that are allocated through the run and kept.
        each: Bytes of each of these.
    """
    base = recorded(name)
    device = max(range(len(base["device_traces"])), key=lambda i: len(base["device_traces"][i]))
    made = dict(base)
    trace = [dict(e) for e in base["device_traces"][device]]
    for event in trace:
        event["time_us"] += later_us
    segments = list(base["segments"])
    stack = [LEAK, *trace[0]["frames"][-1:]]
    for k in range(leak):
        address = (0x7E0000000000 >> 0) + k * 64 * MIB
        at = (k + 1) * len(trace) // (leak + 1)
        when = trace[at - 1]["time_us"]
        common = {"addr": address, "size": each, "stream": 0, "time_us": when, "frames": stack}
        trace[at:at] = [
            {**trace[0], **common, "action": "segment_alloc"},
            {**trace[0], **common, "action": "alloc"},
        ]
        block = {"address": address, "size": each, "requested_size": each, "state": "active_allocated", "frames": stack}
        segment = copy.copy(segments[0])
        segment.update(
            address=address, total_size=each, stream=0, segment_type="large", allocated_size=each, active_size=each,
            requested_size=each, is_expandable=False, segment_pool_id=(0, 0), frames=stack, blocks=[block],
        )  # fmt: skip
        segments.append(segment)
    if oom_after_us is not None:
        last = trace[-1]
        trace.append(
            {**last, "action": "oom", "addr": 0, "device_free": 4 * MIB, "size": 512 * MIB,
             "time_us": last["time_us"] + oom_after_us, "frames": stack}
        )  # fmt: skip
    made["segments"] = segments
    made["device_traces"] = [trace if i == device else t for i, t in enumerate(base["device_traces"])]
    return made


def write(path: Path, made: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = pickle.dumps(made, protocol=4)
    path.write_bytes(gzip.compress(data, 1) if path.name.endswith(".gz") else data)
    return path


def job(
    folder: Path,
    ranks: Iterable[int],
    special: Mapping[int, Mapping[str, Any]],
    name: Callable[[int], str] = lambda r: f"rank{r}_memory_snapshot.pickle.gz",
) -> Path:
    """A folder with a snapshot a rank; those that are not special share their bytes."""
    plain = gzip.compress(pickle.dumps(rank(), protocol=4), 1)
    for r in ranks:
        path = folder / name(r)
        if r in special:
            write(path, rank(**special[r]))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(plain if path.name.endswith(".gz") else gzip.decompress(plain))
    return folder
