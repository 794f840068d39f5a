"""Traces and flame graphs: their numbers are the snapshot's, their form is the format's."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from oomctl import OomctlError, api, tables

from . import cases

PHASES = {"M", "C", "X", "i", "s", "f"}


def events_of(name: str, folder: Path) -> list[dict[str, Any]]:
    api.export(cases.evidence(name), str(folder / "t.trace.json"))
    events: list[dict[str, Any]] = json.loads((folder / "t.trace.json").read_text())["traceEvents"]
    return events


@pytest.mark.parametrize("name", cases.NAMES)
def test_counters_have_the_peaks_and_the_ends(name: str, tmp_path: Path) -> None:
    timeline = tables.timeline(cases.evidence(name))
    values = defaultdict(list)
    for event in events_of(name, tmp_path):
        if event["ph"] == "C":
            values[event["name"]].append(event["args"]["bytes"])
    assert set(values) == {"allocated", "reserved", "idle"}
    for counter, found in values.items():
        assert max(found) == timeline[counter].max()
        assert found[-1] == timeline[counter].iloc[-1]


@pytest.mark.parametrize("name", cases.NAMES)
def test_the_form_is_the_trace_event_format(name: str, tmp_path: Path) -> None:
    events = events_of(name, tmp_path)
    assert {event["ph"] for event in events} <= PHASES
    slices = defaultdict(list)
    flows: Counter[tuple[int, str]] = Counter()
    for event in events:
        assert isinstance(event["pid"], int)
        assert isinstance(event["name"], str)
        if event["ph"] != "M":
            assert isinstance(event["ts"], int)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            slices[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] in "sf":
            flows[event["id"], event["ph"]] += 1
    assert all(flows[number, "s"] == flows[number, "f"] == 1 for number, _ in list(flows))
    named = {event["tid"] for event in events if event["name"] == "thread_name"}
    assert set(slices) <= named
    for spans in slices.values():  # a track holds slices that nest or follow each other
        open_ends: list[int] = []
        for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)


def test_arrows_begin_and_end_in_marks(tmp_path: Path) -> None:
    events = events_of("varlen-train", tmp_path)
    marks = {(e["tid"], e["ts"], e["name"].split()[0]) for e in events if e["ph"] == "X"}
    arrows = [e for e in events if e["ph"] in "sf"]
    assert arrows
    for arrow in arrows:
        assert (arrow["tid"], arrow["ts"], "alloc" if arrow["ph"] == "s" else "free") in marks


def test_failures_steps_and_scopes_are_marked(tmp_path: Path) -> None:
    known = cases.concluded("losses-kept-ring")
    events = events_of("losses-kept-ring", tmp_path)
    assert sum(e["ph"] == "i" and e["name"].startswith("out of memory") for e in events) == 1
    tracks = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name"}
    steps = [e for e in events if e["ph"] == "X" and e["tid"] == tracks["steps"]]
    assert [e["args"]["event"] for e in steps] == known.grid.starts.tolist()


@pytest.mark.parametrize("name", cases.NAMES)
@pytest.mark.parametrize("at", ["peak", "oom", "end"])
def test_folded_lines_sum_to_the_live_bytes(name: str, at: str, tmp_path: Path) -> None:
    source = cases.evidence(name)
    if at == "oom" and not cases.concluded(name).failed:
        with pytest.raises(OomctlError, match="nothing failed"):
            api.export(source, str(tmp_path / "t.folded"), at=at)
        return
    api.export(source, str(tmp_path / "t.folded"), at=at)
    lines = (tmp_path / "t.folded").read_text().splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == tables.culprits(source, at=at)["bytes"].sum()
    assert len({line.rsplit(" ", 1)[0] for line in lines}) == len(lines)


def test_what_leaked_is_what_grew(tmp_path: Path) -> None:
    api.export(cases.evidence("losses-kept"), str(tmp_path / "t.folded"), at="leak")
    total = sum(int(line.rsplit(" ", 1)[1]) for line in (tmp_path / "t.folded").read_text().splitlines())
    assert total == cases.concluded("losses-kept").growth.total
    with pytest.raises(OomctlError, match="nothing grew"):
        api.export(cases.evidence("kv-cat"), str(tmp_path / "u.folded"), at="leak")


@pytest.mark.parametrize("name", ["losses-kept", "kv-cat", "healthy-steady"])
def test_speedscope_profiles(name: str, tmp_path: Path) -> None:
    remarks = api.export(cases.evidence(name), str(tmp_path / "t.speedscope.json"))
    data = json.loads((tmp_path / "t.speedscope.json").read_text())
    frames = data["shared"]["frames"]
    assert len(data["profiles"]) + len(remarks) == 4
    for profile in data["profiles"]:
        assert profile["type"] == "sampled"
        assert profile["unit"] == "bytes"
        assert len(profile["samples"]) == len(profile["weights"])
        assert sum(profile["weights"]) == profile["endValue"]
        assert all(0 <= index < len(frames) for sample in profile["samples"] for index in sample)
    live = {p["name"]: p["endValue"] for p in data["profiles"]}
    assert live["live bytes at peak"] == tables.culprits(cases.evidence(name), at="peak")["bytes"].sum()
