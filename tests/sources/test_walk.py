"""The walk over a pickle's opcodes: many cursors find what one finds, whatever the data."""

from __future__ import annotations

import functools
import pickle
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomctl.sources import pickle_scan
from oomctl.sources.pickle_scan import Walk, walk
from tests.sources import convert


def plainly(data: bytes) -> Walk:
    tally = pickle_scan._Tally()
    end, reason = pickle_scan._walk_plainly(data, 0, tally)
    return tally.judged(len(data), Walk(end, reason, 0, tuple(tally.frames)))


@functools.cache
def written(name: str, protocol: int) -> bytes:
    data = convert.as_version(convert.capture(name), "2.14")  # with pool ids: a tuple in each event
    return convert.pickled_by_cpp(data) if protocol == 0 else pickle.dumps(data, protocol)


@pytest.mark.parametrize("protocol", [0, 2, 3, 4, 5])
@pytest.mark.parametrize("name", ["graph-pools", "shape-bug", "logits-upcast-expandable"])
def test_whole_files(name, protocol):
    found, reference = walk(written(name, protocol)), plainly(written(name, protocol))
    assert (found.end, found.reason, found.frames) == (reference.end, reference.reason, reference.frames)
    assert found.reason == ""
    assert found.memory == pytest.approx(reference.memory, rel=0.01)


def mutated(data: bytes, seed: int) -> bytes:
    """The data with bytes changed, taken out or put in, or cut; some changes near each other, some far apart."""
    rng = random.Random(seed)
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8, 60))):
        at = rng.randrange(2, len(out))
        kind = rng.random()
        if kind < 0.5:
            out[at] = rng.choice((rng.randrange(256), *b"rj(}u.\x86\x95\x8c"))
        elif kind < 0.7:
            del out[at : at + rng.choice((1, 2, 9, 500))]
        elif kind < 0.95:
            start = rng.randrange(len(data))
            out[at:at] = data[start : start + rng.choice((1, 5, 40, 3000))]
        else:
            del out[at:]
        if len(out) < 8:
            break
    return bytes(out)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([0, 2, 4]), st.integers(0, 2**32))
def test_damaged_files(protocol, seed):
    data = mutated(written("shape-bug", protocol), seed)
    found, reference = walk(data), plainly(data)
    if "memo" not in (found.reason, reference.reason):  # one cursor may find an index too large a little earlier
        assert (found.end, found.reason) == (reference.end, reference.reason)
        assert found.frames in (None, reference.frames)
    assert found.batches == () or found.frames is not None


def test_starts_that_are_none():
    data = convert.capture("graph-pools")
    for i, event in enumerate(data["device_traces"][0][::3]):
        event["frames"] = [{"name": f"value({i}ue({i})", "filename": "}q\1(X}\x94(", "line": i}]
    for protocol in (2, 4):
        octets = pickle.dumps(data, protocol)
        assert (walk(octets).end, walk(octets).reason) == (len(octets), "")
        assert len(walk(octets).batches) == 9


@pytest.mark.parametrize("gap", [b"", b"\x95" + bytes(8), b"\x95" + bytes(8) + b"\x95" + bytes(8)])
@pytest.mark.parametrize("filler", [0, 400])
def test_a_tuple_of_tuples_is_seen_across_frames(gap, filler):
    padding = (b"}\x94(K\1K\2u" + b"K\1" * 100) * filler
    tuples = b")\x94" + b"".join(b"h\0" + gap + b"h\0" + gap + b"\x86\x94" for _ in range(30))
    data = b"\x80\x04(" + padding + tuples + b"l."
    assert walk(data).reason == plainly(data).reason == "tuple"
