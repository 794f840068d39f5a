"""Places are recognised after edits: by function, order, what a line calls and holds, and by text where it is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oomctl import api
from oomctl.analysis.matching import Line, match_files, match_lines
from oomctl.errors import OomctlError
from oomctl.model.diff import Diff
from oomctl.model.stacks import Frame, StackTable
from oomctl.sources.code import SourceTree

from .programs import Op, snapshot

TORCH = "/x/site-packages/torch/nn/functional.py"
MAIN = Frame("/app/train.py", 40, "main")


def at(line: int, call: str = "", file: str = "/app/model.py", function: str = "forward") -> tuple[Frame, ...]:
    inner = (Frame(TORCH, len(call) + 1, call),) if call else ()
    return (*inner, Frame(file, line, function), MAIN)


def changes(found: Diff) -> set[tuple[str, int, int]]:
    return {(row.status, row.line, row.change) for row in found.rows}


EDITS = {
    "all lines moved down": (
        [(10, "linear", 4096), (11, "softmax", 8192), (12, "linear", 1024)],
        [(30, "linear", 4096), (31, "softmax", 8192), (32, "linear", 1024)],
        set(),
    ),
    "moved, and one holds more": (
        [(10, "linear", 4096), (11, "softmax", 8192)],
        [(30, "linear", 4096), (31, "softmax", 10240)],
        {("grown", 31, 2048)},
    ),
    "a line came between": (
        [(10, "", 4096), (11, "", 8192)],
        [(10, "", 4096), (11, "", 512), (12, "", 8192)],
        {("new", 11, 512)},
    ),
    "a line went away": (
        [(10, "", 4096), (11, "", 512), (12, "", 8192)],
        [(10, "", 4096), (11, "", 8192)],
        {("gone", 11, -512)},
    ),
    "another call on the same line is another place": (
        [(10, "softmax", 4096)],
        [(10, "dropout", 4096)],
        {("gone", 10, -4096), ("new", 10, 4096)},
    ),
    "two lines changed places": (
        [(10, "linear", 4096), (11, "softmax", 8192)],
        [(10, "softmax", 8192), (11, "linear", 4096)],
        set(),
    ),
    "sizes changed with the batch": (
        [(10, "linear", 4096), (11, "softmax", 8192)],
        [(12, "linear", 8192), (13, "softmax", 16384)],
        {("grown", 12, 4096), ("grown", 13, 8192)},
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_edits(edit: str) -> None:
    before, after, expected = EDITS[edit]
    sides = [snapshot([Op(size, at(line, call)) for line, call, size in side]) for side in (before, after)]
    found = api.diff(*sides)
    assert changes(found) == expected
    assert sum(row.change for row in found.rows) == found.change


def test_files_that_lie_elsewhere_and_functions_that_moved() -> None:
    before = [Op(4096, at(10, "", "/home/a/run1/model.py")), Op(512, at(5, "", "/home/a/run1/util.py", "pad"))]
    after = [Op(4096, at(12, "", "/scratch/run2/model.py")), Op(512, at(9, "", "/scratch/run2/other.py", "pad"))]
    assert api.diff(snapshot(before), snapshot(after)).rows == ()


def test_a_caller_came_between() -> None:
    inner, extra = Frame("/app/model.py", 10, "forward"), Frame("/app/wrap.py", 3, "checkpointed")
    found = api.diff(snapshot([Op(4096, (inner, MAIN))]), snapshot([Op(8192, (inner, extra, MAIN))]))
    assert changes(found) == {("grown", 10, 4096)}


def test_text_decides_where_it_is_known() -> None:
    def lines(*texts: str) -> dict[Frame, Line]:
        frames = [Frame("a.py", 10 + i, "f") for i in range(len(texts))]
        return {frame: Line(frame, text=text) for frame, text in zip(frames, texts, strict=True)}

    before = lines("x = q @ k.T", "x = x.softmax(-1)")
    after = lines("import math", "x = x.softmax(-1)", "y = q @ k.T / math.sqrt(d)", "x = q @ k.T")
    pairs = {b.line: a.line for b, a in match_lines(before, after).items()}
    assert pairs == {10: 13, 11: 11}


def test_text_from_checkouts(tmp_path: Path) -> None:
    """Without text the two lines that hold the same would be told by their order alone."""
    trees = {"old": "x = a + b\ny = c + d\n", "new": "import os\ny = c + d\nz = 0\nx = a + b\n"}
    for name, text in trees.items():
        (tmp_path / name / "app").mkdir(parents=True)
        (tmp_path / name / "app" / "m.py").write_text(text, encoding="utf-8")
    here = "/job/app/m.py"
    before = snapshot([Op(4096, (Frame(here, 1, "f"),)), Op(4096, (Frame(here, 2, "f"),))])
    after = snapshot([Op(8192, (Frame(here, 2, "f"),)), Op(4096, (Frame(here, 4, "f"),))])
    found = api.diff(before, after, sources=(str(tmp_path / "old"), str(tmp_path / "new")))
    assert changes(found) == {("grown", 2, 4096)}
    assert found.rows[0].line_before is None
    with pytest.raises(OomctlError, match="no such folder"):
        api.diff(before, after, sources=(None, str(tmp_path / "none")))


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "link.py", "\0", "", "app", "x" * 5000])
def test_a_checkout_is_not_left(path: str, tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    assert SourceTree(str(tmp_path)).text_of(Frame(path, 1, "f")) is None


@pytest.mark.parametrize(
    ("before", "after", "pairs"),
    [
        ({"/a/m.py"}, {"/a/m.py", "/b/m.py"}, {"/a/m.py": "/a/m.py"}),
        ({"/a/x/m.py", "/a/y/m.py"}, {"/b/y/m.py", "/b/x/m.py"}, {"/a/x/m.py": "/b/x/m.py", "/a/y/m.py": "/b/y/m.py"}),
        ({"C:\\a\\m.py"}, {"/b/m.py"}, {"C:\\a\\m.py": "/b/m.py"}),
        ({"/a/m.py"}, {"/a/n.py"}, {}),
    ],
)
def test_files(before: set[str], after: set[str], pairs: dict[str, str]) -> None:
    assert match_files(before, after) == pairs


def test_very_many_lines_are_matched_in_bounded_time() -> None:
    lines = {Frame("a.py", n, "f"): Line(Frame("a.py", n, "f")) for n in range(3000)}
    assert match_lines(lines, lines) == {frame: frame for frame in lines}


@pytest.mark.parametrize("name", ["losses-kept", "graph-pools", "varlen-train", "first-step", "kv-cat"])
@pytest.mark.parametrize("shift", [(0, 7), (20, 1), (30, -3)])
def test_recorded_runs_whose_lines_moved(name: str, shift: tuple[int, int]) -> None:
    """All lines from one on move, as by an edit above them, and the files lie elsewhere: nothing has changed."""
    path = Path(__file__).resolve().parents[2] / "fixtures" / "captures" / name / "snapshot.pickle.gz"
    before = api.load(str(path)).snapshots[0]
    first, by = shift

    def moved(frame: Frame) -> Frame:
        if not frame.filename.startswith("/workspace/project/"):
            return frame
        line = frame.line + by if frame.line > first else frame.line
        return Frame(frame.filename.replace("/workspace/", "/home/somebody/"), line, frame.name)

    table = before.stacks
    after = replace(before, stacks=StackTable(tuple(moved(f) for f in table.frames), table.offsets, table.frame_ids))
    assert api.diff(before, after).rows == ()
    assert api.diff(after, before, by="frame").rows == ()
