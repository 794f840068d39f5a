"""Tables: their sums are the books', their columns are the documented ones, missing is never 0."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from oomctl import OomctlError, api, tables

from . import cases


@pytest.mark.parametrize("name", cases.NAMES)
def test_sums_equal_the_books(name: str) -> None:
    source, books = cases.evidence(name), cases.concluded(name)
    budget, at = books.budget, str(books.moment.event)
    blocks, segments = tables.blocks(source, at=at), tables.segments(source, at=at)
    by_state = blocks.groupby("state", observed=False)["size"].sum()
    assert segments["size"].sum() == blocks["size"].sum() == budget.reserved
    assert by_state["active_allocated"] == budget.allocated
    assert by_state["active_pending_free"] == budget.pending_free
    assert segments["idle"].sum() == by_state["inactive"] == budget.reserved - budget.active
    assert tables.culprits(source, at=at)["bytes"].sum() == budget.active
    assert (blocks.groupby("segment")["size"].sum() == segments.set_index("address")["size"]).all()
    requested = blocks.loc[blocks["state"] == "active_allocated", "requested"].sum()
    assert budget.allocated - requested == budget.rounding


@pytest.mark.parametrize("name", cases.NAMES)
def test_curves_end_in_the_state_of_the_file(name: str) -> None:
    source, known = cases.evidence(name), cases.concluded(name)
    events, timeline = tables.events(source), tables.timeline(source)
    last = timeline.iloc[-1]
    assert last["reserved"] == tables.segments(source)["size"].sum()
    assert events["active"].max() == known.active.max()
    assert (timeline["idle"] == timeline["reserved"] - timeline["active"]).all()
    assert (events["allocated"] <= events["active"]).all()
    for column in ("active", "allocated", "reserved"):
        assert (events[column] == timeline[column]).all()


@pytest.mark.parametrize("name", cases.NAMES)
def test_columns_are_the_documented_ones(name: str) -> None:
    source = cases.evidence(name)
    made = {
        "events": tables.events(source),
        "blocks": tables.blocks(source),
        "segments": tables.segments(source),
        "stacks": tables.stacks(source),
        "culprits": tables.culprits(source),
        "timeline": tables.timeline(source),
    }
    for table, frame in made.items():
        _check(table, frame)


def _check(table: str, frame: pd.DataFrame) -> None:
    assert list(frame.columns) == [column.name for column in tables.COLUMNS[table]]
    for column in tables.COLUMNS[table]:
        found = frame[column.name].dtype
        if column.dtype in ("action", "state", "kind"):
            assert isinstance(found, pd.CategoricalDtype)
        else:
            assert found == (pd.StringDtype("python") if column.dtype == "text" else column.dtype), column.name


def test_chunks_are_the_whole() -> None:
    source = cases.evidence("graph-pools")
    pieces = list(tables.event_chunks(source, rows=1000))
    assert {len(piece) for piece in pieces[:-1]} == {1000}
    pd.testing.assert_frame_equal(pd.concat(pieces, ignore_index=True), tables.events(source))


def test_stacks_are_what_other_tables_point_into() -> None:
    source = cases.evidence("kv-cat")
    frames, blocks = tables.stacks(source), tables.blocks(source, at="oom")
    assert set(blocks["stack"].dropna()) <= set(frames["stack"])
    inner = frames[frames["kind"] == "user"].groupby("stack").first()
    row = blocks[blocks["stack"].notna()].iloc[0]
    frame = inner.loc[row["stack"]]
    assert row["where"] == f"{frame['file'].rsplit('/')[-1]}:{frame['line']} {frame['function']}"


def test_missing_is_not_zero() -> None:
    events = tables.events(cases.evidence("losses-kept-ring"))
    assert events["pool"].isna().all()
    assert events["device_free"].notna().sum() == (events["action"] == "oom").sum() > 0


def test_replays_as_a_table() -> None:
    found = api.what_if(cases.evidence("batch-too-large"), ["", "expandable_segments:True"])
    frame = tables.whatif(found)
    _check("whatif", frame)
    assert list(frame["alloc_conf"]) == [run.alloc_conf for run in found.runs]
    assert list(frame["peak_reserved"]) == [run.peak_reserved for run in found.runs]


def test_what_needs_events_says_so() -> None:
    snapshot = cases.evidence("batch-too-large").snapshots[0]
    bare = replace(snapshot, devices=tuple(replace(device, trace=None) for device in snapshot.devices))
    assert len(tables.blocks(bare)) > 0
    for make in (tables.events, tables.timeline):
        with pytest.raises(OomctlError, match="no events"):
            make(bare)
    with pytest.raises(OomctlError, match="snapshot is needed"):
        tables.blocks(replace(cases.evidence("kv-cat"), snapshots=()))
