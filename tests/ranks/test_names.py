"""File names of launchers and trainers, and patterns of the user's, tell ranks, hosts and stages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomctl.errors import OomctlError
from oomctl.sources.rank_names import Name, layout_of, natural, pattern_of, place_in, read_name

NAMES = [
    ("rank3/snapshot.pickle", Name(3)),
    ("snapshot_rank_12.pickle", Name(12)),
    ("oom_rank-3_snapshot.pickle", Name(3)),
    ("torch_traces/rank7_oom_snapshot.pickle", Name(7)),
    ("rank7.5.memory_snapshot.pickle", Name(7)),
    ("iteration_10_exit/rank0_memory_snapshot.pickle", Name(0)),
    ("oom-20260131T120000Z-rank31", Name(31)),
    ("oom-20260131T120000Z-rank31-2.zip", Name(31)),
    ("memory_snapshot_rank0_step6.pkl", Name(0)),
    ("Rank=4.pickle", Name(4)),
    ("rank0003/host_rank2.pickle", Name(2)),
    ("run1/attempt_0/5/stderr.log", Name(None, 5)),
    ("node07/local_rank3.pickle", Name(None, 3, "node07")),
    ("dgx-12/gpu5/snap.pickle", Name(None, 5, "dgx-12")),
    ("mp_rank_02_003/snapshot.pickle", Name(stage=(("pp", 3), ("tp", 2)))),
    ("pp1_tp0_rank9.pickle", Name(9, stage=(("pp", 1), ("tp", 0)))),
    ("stage2/rank17.pickle", Name(17, stage=(("stage", 2),))),
    ("rank5_ep3.pickle", Name(5, stage=(("ep", 3),))),
    ("dump_rank3.pickle", Name(3)),
    ("frank3.pickle", Name()),
    ("snapshot.pickle", Name()),
    ("pranks_2.pickle", Name()),
]


@pytest.mark.parametrize(("path", "name"), NAMES, ids=lambda v: v if isinstance(v, str) else "")
def test_known_schemes(path: str, name: Name) -> None:
    assert read_name(path) == name
    assert read_name(path.replace("/", "\\")) == name


@pytest.mark.parametrize(
    ("pattern", "path", "name"),
    [
        ("dump_{rank}_*.pickle", "dump_17_of_64.pickle", Name(17)),
        ("{host}.{local_rank}.pickle", "nid001.3.pickle", Name(None, 3, "nid001")),
        (r"w(?P<rank>\d+)e(?P<ep>\d+)", "w12e3.pkl", Name(12, stage=(("ep", 3),))),
        ("dump_{rank}.pickle", "rank3.pickle", Name()),
        ("*{rank}.pickle", "run2_rank12.pickle", Name(12)),
        ("*" * 50 + "{rank}", "a/rank12", Name(12)),
        ("*?**?*{rank}?pickle*", "ab12.pickle.gz", Name(12)),
        ("*0" * 100 + "{rank}x", "0" * 60_000, Name()),
        ("x{host}y*0*0*0*{rank}z", "xy" * 30_000, Name()),
        ("{rank}.pickle", "1234567.pickle", Name()),
    ],
)
def test_patterns(pattern: str, path: str, name: Name) -> None:
    assert read_name(path, pattern_of(pattern)) == name


@pytest.mark.parametrize(
    "pattern",
    ["dump.pickle", "dump_{nothing}.pickle", "(?P<rank>[", "{host}.pickle", "{rank}{tp}", "{rank}" + "a" * 500],
)
def test_patterns_that_name_no_rank(pattern: str) -> None:
    with pytest.raises(OomctlError, match="--rank-pattern"):
        pattern_of(pattern)


@given(st.text(max_size=80))
def test_any_name_is_read(path: str) -> None:
    name = read_name(path)
    assert name.key is None or name.label
    natural(path)


def test_layouts() -> None:
    layout = layout_of("tp=2, dp=4,pp=8")
    assert place_in(0, layout) == (("tp", 0), ("dp", 0), ("pp", 0))
    assert place_in(63, layout) == (("tp", 1), ("dp", 3), ("pp", 7))
    assert layout_of(None) == ()
    with pytest.raises(OomctlError, match="--layout"):
        layout_of("tp=two")


def test_numbers_sort_as_numbers() -> None:
    assert sorted(["step10", "step9", "step100"], key=natural) == ["step9", "step10", "step100"]
