"""Replays under other settings against what a GPU did under them."""

from __future__ import annotations

import json

import pytest

import oomctl
from oomctl.allocator import what_if
from oomctl.allocator.trial import thin
from oomctl.allocator.whatif import search_set
from oomctl.errors import OomctlError
from tests.allocator.machine import Machine, cut, random_program
from tests.allocator.test_selftest import CAPTURES, DATA, TORCH, snapshot

MIB = 1 << 20
MEASURED = json.loads((DATA / "measured.json").read_text(encoding="utf-8"))
RERUNS = MEASURED["reruns"]


def capture(name: str) -> oomctl.model.snapshot.Snapshot:
    return snapshot(next(p for p in CAPTURES if p.name == name) / "snapshot.pickle.gz")


@pytest.mark.parametrize("name", RERUNS)
def test_served_as_on_the_gpu(name: str) -> None:
    reruns, limit = RERUNS[name]["reruns"], RERUNS[name]["limit"]
    found = what_if(capture(name), 0, [r["alloc_conf"] for r in reruns], torch=TORCH, limit=limit)
    assert {r.alloc_conf: r.served for r in found.runs} == {r["alloc_conf"]: r["served"] for r in reruns}


@pytest.mark.parametrize("name", RERUNS)
def test_a_limit_that_the_trace_leaves_open_is_never_guessed_wrong(name: str) -> None:
    reruns = [r for r in RERUNS[name]["reruns"] if "cudaMallocAsync" not in r["alloc_conf"]]
    found = what_if(capture(name), 0, [r["alloc_conf"] for r in reruns], torch=TORCH)
    truth = {r["alloc_conf"]: r["served"] for r in reruns}
    close = found.limit is None or abs(found.limit - RERUNS[name]["limit"]) < found.limit // 50
    assert all(not close or r.served in (None, truth[r.alloc_conf]) for r in found.runs)


@pytest.mark.parametrize("keep", [0.5, 0.2, 0.05])
def test_ring_buffers(keep: float) -> None:
    right = told = 0
    for name, measured in RERUNS.items():
        reruns = measured["reruns"]
        short = cut(capture(name), keep)
        found = what_if(short, 0, [r["alloc_conf"] for r in reruns], torch=TORCH, limit=measured["limit"])
        truth = {r["alloc_conf"]: r["served"] for r in reruns}
        for run in found.runs:
            assert run.certainty != "firm" or found.identity.reason == ""
            told += run.served is not None
            right += run.served == truth[run.alloc_conf]
    assert right >= 0.93 * told
    assert told >= 0.9 * sum(len(m["reruns"]) for m in RERUNS.values())


@pytest.mark.parametrize("run", MEASURED["peaks"]["conv"], ids=lambda r: r["alloc_conf"] or "defaults")
def test_peaks_as_on_the_gpu(run: dict[str, object]) -> None:
    found = what_if(snapshot(DATA / "conv.pickle.gz"), 0, [str(run["alloc_conf"])], torch=TORCH).runs[0]
    assert (found.peak_reserved, found.device_allocs) == (run["peak_reserved"], run["device_allocs"])
    assert found.served is None
    assert found.oom is False


def test_the_recorded_setting_fails_as_recorded() -> None:
    found = oomctl.replay(capture("varlen-train"), "")
    assert (found.served, found.oom, found.failed_at, found.certainty) == (False, True, 2223, "firm")


@pytest.mark.parametrize(
    ("name", "limit", "served"), [("varlen-train", 16 * 1024 * MIB, True), ("varlen-train", 8 * 1024 * MIB, False)]
)
def test_another_limit(name: str, limit: int, served: bool) -> None:
    assert oomctl.replay(capture(name), "expandable_segments:True", limit=limit).served is served


def test_the_smallest_limit_is_the_smallest() -> None:
    recorded = capture("varlen-train")
    run = what_if(recorded, 0, ["expandable_segments:True"], torch=TORCH, fit=True).runs[0]
    assert run.smallest_limit is not None
    assert run.peak_reserved is not None
    assert oomctl.replay(recorded, "expandable_segments:True", limit=run.smallest_limit + 20 * MIB).served is True
    assert oomctl.replay(recorded, "expandable_segments:True", limit=run.smallest_limit - 20 * MIB).served is False


def test_the_search_leaves_out_what_cannot_help() -> None:
    from oomctl.allocator.selftest import read_recording

    recording = read_recording(capture("swiss-cheese"), 0, TORCH)
    assert not any("garbage" in conf for conf in search_set(recording, TORCH, has_fraction=False))
    old = search_set(recording, (1, 13), has_fraction=True)
    assert "max_split_size_mb:128" in old
    assert not any("expandable" in conf or "Async" in conf for conf in old)


def test_best_first() -> None:
    found = what_if(capture("kv-cat"), 0, torch=TORCH)
    served = [run.served for run in found.runs]
    assert served == sorted(served, key=(True, None, False).index)
    assert found.runs[0].alloc_conf == "expandable_segments:True"
    assert len({run.alloc_conf for run in found.runs}) == len(found.runs)


def test_processes_give_the_same() -> None:
    recorded = capture("first-step")
    assert what_if(recorded, 0, torch=TORCH, processes=2).runs == what_if(recorded, 0, torch=TORCH).runs


def test_an_inexact_replay_is_withheld() -> None:
    machine = Machine("", 400 * MIB)
    random_program(machine, 5, 300)
    other = Machine("max_split_size_mb:32")
    random_program(other, 5, 300)
    mixed = machine.snapshot()
    device = mixed.devices[0]
    assert device.trace is not None
    wrong = type(mixed)(
        (type(device)(0, device.segments, device.blocks, device.pools, other.snapshot().devices[0].trace),),
        mixed.stacks, mixed.settings, (), mixed.torch, "cuda", (), (),
    )  # fmt: skip
    run = what_if(wrong, 0, ["expandable_segments:True"], torch=TORCH).runs[0]
    assert (run.peak_reserved, run.served, run.certainty) == (None, None, "open")
    assert "withheld" in run.notes[0]


def test_a_setting_that_torch_refuses() -> None:
    run = what_if(capture("first-step"), 0, ["max_split_size_mb:1"], torch=TORCH).runs[0]
    assert (run.peak_reserved, run.certainty) == (None, "open")
    assert "does not start" in run.notes[0]


def test_no_device() -> None:
    with pytest.raises(OomctlError):
        what_if(capture("first-step"), 4, torch=TORCH)


@pytest.mark.parametrize("n", [0, 1, 5, 500, 10_000])
def test_thinning_keeps_the_peak_and_the_ends(n: int) -> None:
    values = [(i * 7919) % 1009 for i in range(n)]
    events, kept = thin(range(n), values, 100)
    assert list(events) == sorted(set(events))
    assert all(values[e] == v for e, v in zip(events, kept, strict=True))
    assert len(events) <= 160
    assert max(kept, default=0) == max(values, default=0)
    assert events[-1:] == tuple(range(n))[-1:]
