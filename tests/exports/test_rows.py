"""Tables in files: what is read back is what was written, and nothing in them acts."""

from __future__ import annotations

import csv
import json
import os
import sqlite3
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from oomctl import OomctlError, api, tables
from oomctl.cli.main import main
from oomctl.exports.frames import plain
from oomctl.exports.registry import FORMATS, format_of
from oomctl.model.stacks import Frame

from . import cases

TABLES = ("events", "blocks", "segments", "stacks", "culprits", "timeline")


def made(table: str, name: str) -> pd.DataFrame:
    frame: pd.DataFrame = getattr(tables, table)(cases.evidence(name))
    return frame


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("ending", "read"), [("parquet", "read_parquet"), ("feather", "read_feather")])
def test_arrow_is_lossless(table: str, ending: str, read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(tables.event_chunks, "__defaults__", (None, 1500))
    target = tmp_path / f"t.{ending}"
    api.export(cases.evidence("graph-pools"), str(target), table=table)
    back = getattr(pd, read)(target)
    expected = made(table, "graph-pools")
    pd.testing.assert_frame_equal(back.astype(expected.dtypes), expected)
    for column in tables.COLUMNS[table]:
        if column.dtype != tables.TEXT:  # kept by Python or by Arrow, as the reader likes
            assert back[column.name].dtype == expected[column.name].dtype


def test_arrow_carries_units(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    api.export(cases.evidence("batch-too-large"), str(tmp_path / "t.parquet"))
    schema = parquet.read_schema(tmp_path / "t.parquet")
    assert schema.field("reserved").metadata[b"unit"] == b"bytes"


@pytest.mark.parametrize("table", TABLES)
def test_text_formats_hold_the_same(table: str, tmp_path: Path) -> None:
    expected = plain(made(table, "graph-pools"), table)
    for ending in ("csv", "json", "jsonl"):
        api.export(cases.evidence("graph-pools"), str(tmp_path / f"t.{ending}"), table=table)
    whole = json.loads((tmp_path / "t.json").read_text())
    lines = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert whole["schema"] == "oomctl.table/1"
    assert [column["name"] for column in whole["columns"]] == list(expected.columns)
    assert whole["rows"] == lines
    with open(tmp_path / "t.csv", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == len(lines) == len(expected)
    for column in tables.COLUMNS[table]:
        if column.unit == "bytes":
            values = [None if pd.isna(value) else int(value) for value in expected[column.name]]
            assert [line[column.name] for line in lines] == values
            assert [int(row[column.name]) if row[column.name] else None for row in rows] == values
        if column.unit in ("address", "handle"):
            assert [int(row[column.name], 16) for row in rows] == made(table, "graph-pools")[column.name].tolist()


def test_a_database_can_be_asked(tmp_path: Path) -> None:
    target = tmp_path / "t.sqlite"
    api.export(cases.evidence("kv-cat"), str(target))
    connection = sqlite3.connect(target)
    events, blocks = made("events", "kv-cat"), made("blocks", "kv-cat")
    assert connection.execute("SELECT count(*), max(reserved) FROM events").fetchone() == (
        len(events),
        events["reserved"].max(),
    )
    assert connection.execute("SELECT sum(size) FROM blocks").fetchone()[0] == blocks["size"].sum()
    where = connection.execute(
        "SELECT function FROM events e JOIN stacks s ON s.stack = e.stack WHERE e.action = 'oom' AND s.kind = 'user'"
        " ORDER BY s.depth LIMIT 1"
    ).fetchone()
    assert where == ("decode",)
    explained = connection.execute('SELECT count(*) FROM columns WHERE "table" = ?', ("events",)).fetchone()[0]
    assert explained == len(events.columns)
    connection.close()


HOSTILE = (
    "=cmd|'/c calc'!A1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\tx",
    "a,b",
    'a"b',
    "a\nb",
    "'; DROP TABLE events; --",
    "\u202ex",
)


@pytest.mark.parametrize("text", HOSTILE)
def test_names_from_files_do_nothing(text: str, tmp_path: Path) -> None:
    source = cases.evidence("batch-too-large")
    snapshot = source.snapshots[0]
    frames = tuple(Frame(text, frame.line, text) for frame in snapshot.stacks.frames)
    hostile = replace(source, snapshots=(replace(snapshot, stacks=replace(snapshot.stacks, frames=frames)),))
    for ending in ("csv", "json", "sqlite", "folded", "speedscope.json", "trace.json"):
        api.export(hostile, str(tmp_path / f"t.{ending}"), table="stacks" if ending in ("csv", "json") else "")
    with open(tmp_path / "t.csv", newline="") as stream:
        cells = {row["function"] for row in csv.DictReader(stream)}
    assert cells == {"'" + text if text[0] in "=+-@\t" else text}
    assert {row["file"] for row in json.loads((tmp_path / "t.json").read_text())["rows"]} == {text}
    connection = sqlite3.connect(tmp_path / "t.sqlite")
    assert connection.execute("SELECT DISTINCT file FROM stacks").fetchall() == [(text,)]
    connection.close()
    lines = (tmp_path / "t.folded").read_text().split("\n")
    assert all(line.rsplit(" ", 1)[1].isdigit() for line in lines if line)
    for ending in ("speedscope.json", "trace.json"):
        json.loads((tmp_path / f"t.{ending}").read_text())


def test_every_format_is_found_by_its_endings() -> None:
    endings = [end for one in FORMATS for end in one.suffixes]
    assert len(endings) == len(set(endings))
    for one in FORMATS:
        assert one.what
        assert one.what.endswith(".")
        assert format_of("any", one.name) is one
        assert {format_of("x" + end.upper()) for end in one.suffixes} == {one}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--to", "t.xyz"], "cannot tell the format"),
        (["--to", "t.csv", "--table", "nothing"], "no table"),
        (["--to", "t.csv", "--format", "nothing"], "no format"),
        (["--to", "t.csv", "--device", "7"], "nothing about GPU 7"),
        (["--to", "t.csv", "--table", "blocks", "--at", "never"], "no moment"),
        (["--to", ".", "--format", "csv"], "is a directory"),
        (["--to", "no/such/t.csv"], "cannot write"),
    ],
    ids=str,
)
def test_what_cannot_be_written_is_said(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", cases.path("batch-too-large"), *args]) == 2
    assert message in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "t.csv"
    target.write_text("before")

    def broken(*_args: object) -> None:
        raise OomctlError("broken half-way")

    monkeypatch.setattr(tables, "stacks", broken)
    with pytest.raises(OomctlError):
        api.export(cases.evidence("batch-too-large"), str(target), table="stacks")
    assert target.read_text() == "before"
    assert os.listdir(tmp_path) == ["t.csv"]


def test_only_files_are_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "t.csv"
    os.mkfifo(pipe)
    with pytest.raises(OomctlError, match="is no file"):
        api.export(cases.evidence("batch-too-large"), str(pipe))


def test_the_command_writes_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "t.csv"
    assert main(["export", cases.path("batch-too-large"), "--to", str(target)]) == 0
    printed = capsys.readouterr()
    assert printed.out == ""
    assert f"wrote {target}: {target.stat().st_size:,} bytes" in printed.err
    assert len(target.read_text().splitlines()) == 1 + len(made("events", "batch-too-large"))
