"""Mutated files of oomctl's own: saved reports as JSON and HTML, and the incident of a recording."""

from __future__ import annotations

import functools
import json
import random
from typing import Any

from tests.fuzz import seeds, snapshots
from tests.fuzz.names import NAMES
from tests.report.samples import SAMPLES

INCIDENT = {
    "schema": "oomctl.incident/1", "cause": "oom", "backend": "cuda", "torch": "2.11.0+cu130", "rank": 0, "time_us": 1,
    "device": {"index": 0, "name": "NVIDIA H200", "total": 150 << 30},
    "mem_get_info": {"free": 1 << 30, "total": 150 << 30},
    "request": {"size": 20 << 20, "segment_size": 20 << 20, "device_free": 1 << 20, "allowed_or_total": 2 << 30},
    "allocated": 1 << 30, "reserved": 2 << 30, "card": {"used": 3 << 30, "total": 150 << 30},
    "processes": [{"pid": 7, "used": 1 << 30, "own": True}, {"pid": 8, "used": 1 << 30}],
    "environment": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "notes": ["a note"],
}  # fmt: skip
NUMBERS = (*snapshots.NUMBERS, 10**400, -(10**400), 1e308, float("nan"), float("inf"))
ODD = (*snapshots.ODD, *NUMBERS, "x" * 10_000, "0x" + "f" * 5000)
CAPTURES = ("crowded-early", "load-weights", "rounding-waste", "first-step")


@functools.cache
def _saved(name: str, fmt: str) -> str:
    from oomctl import api

    if name in SAMPLES:
        return api.render(SAMPLES[name](), fmt)
    path = str(seeds.FIXTURES / "captures" / name / "snapshot.pickle.gz")
    return api.render(api.diagnose(path), fmt)


def mutated(rng: random.Random) -> bytes:
    """One file that something happened to."""
    name = rng.choice((*CAPTURES, *SAMPLES))
    way = rng.random()
    if way < 0.15:
        return snapshots.hit(rng, _saved(name, rng.choice(("json", "html"))).encode())
    tree = json.loads(json.dumps(INCIDENT)) if way < 0.4 else json.loads(_saved(name, "json"))
    for _ in range(1 + int(rng.expovariate(0.6))):
        _change(rng, tree)
    text = json.dumps(tree, default=str)
    if way > 0.9:
        text = f'<!doctype html><html><script type="application/json">{text}</script></html>'
    return text.encode("utf-8", "surrogatepass")


def _change(rng: random.Random, tree: Any) -> None:
    parent, key, value = None, None, tree
    while isinstance(value, dict | list) and value and (parent is None or rng.random() < 0.85):
        parent = value
        key = rng.choice(list(value)) if isinstance(value, dict) else rng.randrange(len(value))
        value = parent[key]
    if parent is None:
        return
    way = rng.randrange(5)
    if way == 0:
        del parent[key]
    elif way == 1 and isinstance(value, str):
        parent[key] = rng.choice(NAMES)
    elif way == 2 and isinstance(value, int | float):
        parent[key] = rng.choice(NUMBERS)
    elif way == 3 and isinstance(value, list):
        value[:] = rng.choice((value * rng.choice((0, 2, 50)), value[1:], value[::-1]))
    else:
        parent[key] = rng.choice(ODD)
