"""What is mutated: the recorded snapshots and the logs among the fixtures."""

from __future__ import annotations

import functools
import pickle
import random
from pathlib import Path

from tests.sources import convert

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
_SMALL = 400_000
"""Bytes of a snapshot up to which it is taken most of the time: what goes wrong hardly depends on the size."""


@functools.cache
def packed() -> dict[str, bytes]:
    """Snapshots by name, compressed as they lie there."""
    return {p.parent.name: p.read_bytes() for p in sorted(FIXTURES.glob("captures/*/snapshot.pickle.gz"))}


@functools.cache
def pickled(name: str) -> bytes:
    return pickle.dumps(convert.capture(name), 4)


@functools.cache
def logs() -> tuple[bytes, ...]:
    paths = [
        p for pattern in ("logs/*.txt", "captures/*/stderr.log", "captures/*/*.txt") for p in FIXTURES.glob(pattern)
    ]
    return tuple(p.read_bytes() for p in sorted(paths))


@functools.cache
def _by_size() -> tuple[list[str], list[str]]:
    names = list(packed())
    small = [name for name in names if len(pickled(name)) <= _SMALL]
    return small, names


def snapshot(rng: random.Random) -> str:
    """Name of a snapshot; one in thirty is of any size."""
    small, every = _by_size()
    return rng.choice(every if rng.random() < 1 / 30 else small)


def objects(name: str) -> dict:
    """The objects of a snapshot, fresh ones, to be changed."""
    data: dict = pickle.loads(pickled(name))
    return data
