"""Folders, patterns, archives and stores: which files are one rank's, and which paths are no job at all."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from oomctl.errors import OomctlError
from oomctl.sources.rank_names import pattern_of
from oomctl.sources.ranks import Found, find_ranks


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def shown(found: Found | None, folder: Path) -> dict[str, list[str]] | None:
    if found is None:
        return None
    return {r.label: [p.name.removeprefix(str(folder) + "/") for p in r.parts] for r in found.ranks}


FOLDERS = {
    "one rank a file": (
        ["rank0.pickle", "rank10.pickle", "rank2.pickle"],
        {"rank 0": ["rank0.pickle"], "rank 2": ["rank2.pickle"], "rank 10": ["rank10.pickle"]},
    ),
    "logs go with their rank": (
        ["rank0.pickle", "rank1.pickle", "rank1.log", "train.log", "notes.md", "model.pt"],
        {"rank 0": ["rank0.pickle"], "rank 1": ["rank1.pickle", "rank1.log"]},
    ),
    "the latest dump, a failure's first": (
        [
            "iteration_9/rank0_memory_snapshot.pickle",
            "iteration_10/rank0_memory_snapshot.pickle",
            "iteration_10_exit/rank1_memory_snapshot.pickle",
            "iteration_20/rank1_memory_snapshot.pickle",
        ],
        {
            "rank 0": ["iteration_10/rank0_memory_snapshot.pickle"],
            "rank 1": ["iteration_10_exit/rank1_memory_snapshot.pickle"],
        },
    ),
    "pages and pictures beside the snapshot": (
        [
            "rank0_oom_snapshot.pickle",
            "rank0_oom_trace_plot.html",
            "rank0_oom_memory_flamegraph.svg",
            "rank1_oom_snapshot.pickle",
        ],
        {"rank 0": ["rank0_oom_snapshot.pickle"], "rank 1": ["rank1_oom_snapshot.pickle"]},
    ),
    "hosts": (
        ["dump_node1_0131.pickle", "dump_node2_0131.pickle"],
        {"node1": ["dump_node1_0131.pickle"], "node2": ["dump_node2_0131.pickle"]},
    ),
    "names that differ somewhere": (
        ["run_a_x.pickle", "run_b_x.pickle"],
        {"a": ["run_a_x.pickle"], "b": ["run_b_x.pickle"]},
    ),
    "logs alone": (
        ["rank0/stderr.log", "rank1/stderr.log"],
        {"rank 0": ["rank0/stderr.log"], "rank 1": ["rank1/stderr.log"]},
    ),
    "one incident": (["snapshot.pickle", "train.log"], None),
    "one incident beside other JSON": (["snapshot.pickle", "train.log", "config.json", "trainer_state.json"], None),
    "snapshots in JSON": (
        ["snapshot_rank0.json", "snapshot_rank1.json", "args.json"],
        {"rank 0": ["snapshot_rank0.json"], "rank 1": ["snapshot_rank1.json"]},
    ),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_folders(case: str, tmp_path: Path) -> None:
    names, expected = FOLDERS[case]
    touch(tmp_path, *names)
    assert shown(find_ranks([str(tmp_path)]), tmp_path) == expected
    if expected is not None:
        assert shown(find_ranks([f"{tmp_path}/**/*"]), tmp_path) is not None


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes")
def test_pipes_are_not_opened(tmp_path: Path) -> None:
    touch(tmp_path, "rank0.pickle", "rank1.pickle")
    os.mkfifo(tmp_path / "rank2.pickle")
    found = find_ranks([str(tmp_path)])
    assert found is not None
    assert [r.label for r in found.ranks] == ["rank 0", "rank 1"]
    assert find_ranks([str(tmp_path / "rank2.pickle")]) is None


def test_bundles_are_one_unit_each(tmp_path: Path) -> None:
    for r in (0, 1):
        touch(tmp_path / f"oom-20260131T120000Z-rank{r}", "snapshot.pickle", "stack.txt", "memory_stats.json")
        (tmp_path / f"oom-20260131T120000Z-rank{r}" / "incident.json").write_text(
            json.dumps({"schema": "oomctl.incident/1"})
        )
    found = find_ranks([str(tmp_path)])
    assert found is not None
    assert [r.label for r in found.ranks] == ["rank 0", "rank 1"]
    assert [p.name.rpartition("/")[2] for p in found.ranks[0].parts] == [
        "incident.json",
        "snapshot.pickle",
        "memory_stats.json",
    ]
    assert find_ranks([str(tmp_path / "oom-20260131T120000Z-rank0")]) is None


@pytest.mark.parametrize("prefix", ["", "dumps/"])
def test_archives(tmp_path: Path, prefix: str) -> None:
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for r in (1, 0):
            archive.writestr(f"{prefix}rank{r}.pickle", b"x")
        archive.writestr("__MACOSX/rank0.pickle", b"x")
    found = find_ranks([str(tmp_path / "all.zip")])
    assert found is not None
    assert [(r.label, r.parts[0].member) for r in found.ranks] == [
        ("rank 0", f"{prefix}rank0.pickle"),
        ("rank 1", f"{prefix}rank1.pickle"),
    ]


def test_one_incident_in_an_archive_is_no_job(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "oom-rank0.zip", "w") as archive:
        archive.writestr("incident.json", "{}")
        archive.writestr("snapshot.pickle", b"x")
    assert find_ranks([str(tmp_path / "oom-rank0.zip")]) is None


SEVERAL = {
    "folders without a rank": (
        ["a/snapshot.pickle", "a/stderr.log", "b/snapshot.pickle", "b/stderr.log"],
        ["a", "b"],
        {"a": ["a/snapshot.pickle", "a/stderr.log"], "b": ["b/snapshot.pickle", "b/stderr.log"]},
    ),
    "folders of ranks": (
        ["job/rank0/snapshot.pickle", "job/rank1/snapshot.pickle"],
        ["job/rank0", "job/rank1"],
        {"rank 0": ["job/rank0/snapshot.pickle"], "rank 1": ["job/rank1/snapshot.pickle"]},
    ),
    "one name in several folders": (
        ["a/snapshot.pickle", "b/snapshot.pickle"],
        ["a/snapshot.pickle", "b/snapshot.pickle"],
        {"a": ["a/snapshot.pickle"], "b": ["b/snapshot.pickle"]},
    ),
    "a folder and a pattern": (
        ["node1/rank0.pickle", "node2/rank1.pickle", "node2/rank1.log"],
        ["node1", "node2/*"],
        {"rank 0": ["node1/rank0.pickle"], "rank 1": ["node2/rank1.pickle", "node2/rank1.log"]},
    ),
    "the same file twice": (["a/snapshot.pickle"], ["a/snapshot.pickle", "a/snapshot.pickle"], None),
    "a log from elsewhere": (
        ["rank0/snapshot.pickle", "logs/train.log"],
        ["rank0/snapshot.pickle", "logs"],
        {"rank 0": ["rank0/snapshot.pickle", "logs/train.log"]},
    ),
}


@pytest.mark.parametrize("case", SEVERAL)
def test_several_paths(case: str, tmp_path: Path) -> None:
    """Names are told apart by the folders that were given, and a text beside one snapshot is that one's."""
    files, paths, expected = SEVERAL[case]
    touch(tmp_path, *files)
    assert shown(find_ranks([str(tmp_path / path) for path in paths]), tmp_path) == expected


def test_files_as_a_shell_gives_them(tmp_path: Path) -> None:
    touch(tmp_path, "rank0.pickle", "rank1.pickle", "rank0.log")
    paths = [str(tmp_path / name) for name in ("rank0.log", "rank0.pickle", "rank1.pickle")]
    assert shown(find_ranks(paths), tmp_path) == {"rank 0": ["rank0.pickle", "rank0.log"], "rank 1": ["rank1.pickle"]}
    assert find_ranks(paths[:2]) is None


def test_a_pattern_decides_alone(tmp_path: Path) -> None:
    touch(tmp_path, "w3.pickle", "w4.pickle", "rank9.pickle")
    found = find_ranks([str(tmp_path)], pattern_of("w{rank}.pickle"))
    assert found is not None
    assert [r.label for r in found.ranks] == ["rank 3", "rank 4"]
    assert any("rank9.pickle" in limit.reason for limit in found.limits)


def test_stores_through_fsspec() -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for r in (0, 1):
        memory.pipe(f"/job/rank{r}.pickle", b"bytes%d" % r)
    try:
        found = find_ranks(["memory://job"])
        assert found is not None
        assert [r.label for r in found.ranks] == ["rank 0", "rank 1"]
        with found.ranks[1].parts[0].opened() as file:
            assert file.read() == b"bytes1"
        with pytest.raises(OomctlError, match="no snapshot or log there"):
            find_ranks(["memory://nothing*"])
    finally:
        memory.rm("/job", recursive=True)


@pytest.mark.parametrize("what", ["empty folder", "pattern"])
def test_nothing_there(what: str, tmp_path: Path) -> None:
    path = str(tmp_path) if what == "empty folder" else f"{tmp_path}/*.pickle"
    with pytest.raises(OomctlError, match=r"no (snapshot|such files)"):
        find_ranks([path])
