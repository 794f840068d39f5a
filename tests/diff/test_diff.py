"""`oomctl diff`: rows sum to the change, equal runs have none, layout is not allocation, the gate, reports."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomctl import api
from oomctl.cli.main import main
from oomctl.errors import OomctlError
from oomctl.model.diff import STATUSES
from tests.golden import check

from .programs import Op, programs, snapshot

HERE = Path(__file__).parent
CAPTURES = HERE.parents[1] / "fixtures" / "captures"
MIB = 1 << 20


def capture(name: str) -> str:
    return str(CAPTURES / name / "snapshot.pickle.gz")


@settings(max_examples=120, deadline=None)
@given(programs(), programs(), st.sampled_from(["peak", "end"]), st.sampled_from(["stack", "frame", "size"]))
def test_rows_sum_to_the_change_to_the_byte(before: list[Op], after: list[Op], at: str, by: str) -> None:
    found = api.diff(snapshot(before), snapshot(after), at=at, by=by)
    assert sum(row.change for row in found.rows) == found.change == found.after.allocated - found.before.allocated
    assert sum(row.bytes_before for row in found.rows) + found.same_bytes == found.before.allocated
    assert sum(row.bytes_after for row in found.rows) + found.same_bytes == found.after.allocated
    for row in found.rows:
        assert row.status in STATUSES
        assert (row.status == "new") == (row.bytes_before == 0)
        assert (row.status == "gone") == (row.bytes_after == 0)
        assert row.change == row.bytes_after - row.bytes_before != 0


@settings(max_examples=60, deadline=None)
@given(programs(), st.sampled_from(["stack", "frame", "size"]), st.integers(0, 3))
def test_the_same_requests_laid_out_otherwise(ops: list[Op], by: str, slack: int) -> None:
    plain, roomy = snapshot(ops), snapshot(ops, slack=slack * MIB)
    found = api.diff(plain, roomy, by=by)
    assert found.rows == ()
    assert found.change == 0
    assert found.after.reserved is not None
    assert found.before.reserved is not None
    made = sum(1 for op in ops if op.of < 0)
    assert (found.after.peak_reserved or 0) - (found.before.peak_reserved or 0) == slack * MIB * made


@pytest.mark.parametrize(
    "name", ["losses-kept", "outputs-kept-nostack", "graph-pools", "losses-kept-ring", "load-weights"]
)
def test_nothing_changed_between_a_snapshot_and_itself(name: str) -> None:
    found = api.diff(capture(name), capture(name))
    assert (found.rows, found.change, found.settings) == ((), 0, ())
    assert found.same_bytes == found.before.allocated > 0
    assert found.headline.startswith("no change")


@pytest.mark.parametrize(("before", "after"), [("healthy-steady", "losses-kept"), ("kv-cat", "varlen-train")])
def test_real_pairs_sum(before: str, after: str) -> None:
    for at in ("peak", "end"):
        found = api.diff(capture(before), capture(after), at=at)
        assert sum(row.change for row in found.rows) == found.change


def test_steps_side_by_side() -> None:
    found = api.diff(capture("healthy-steady"), capture("healthy-steady"))
    assert found.steps is not None
    assert found.steps.paired == found.steps.total_before == found.steps.total_after > 10
    assert all(p.peak_before == p.peak_after and p.floor_before == p.floor_after for p in found.steps.pairs)


@pytest.mark.parametrize(
    ("before", "after", "tolerance", "fails"),
    [
        (1000 * MIB, 1021 * MIB, "2%", True),
        (1000 * MIB, 1020 * MIB, "2%", False),
        (1000 * MIB, 1020 * MIB, "20MiB", False),
        (1000 * MIB, 1021 * MIB, "20 MiB", True),
        (1000 * MIB, 1000 * MIB, "0", False),
        (1000 * MIB, 1001 * MIB, "0", True),
        (1000 * MIB, 1 * MIB, "0%", False),
    ],
)
def test_gate(before: int, after: int, tolerance: str, fails: bool) -> None:
    found = api.diff(snapshot([Op(before)]), snapshot([Op(after)]), fail_if_grown=tolerance)
    assert found.guard is not None
    assert found.guard.failed is fails


def test_a_run_that_failed_does_not_pass_the_gate() -> None:
    found = api.diff(snapshot([Op(MIB)]), snapshot([Op(MIB)], oom=MIB), fail_if_grown="10%")
    assert found.guard is not None
    assert found.guard.failed
    assert "ran out of memory" in found.guard.reason


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"at": "noon"}, "no moment 'noon'"),
        ({"at": "oom"}, "nothing failed in this trace"),
        ({"by": "colour"}, "no rows by 'colour'"),
        ({"fail_if_grown": "much"}, "no tolerance 'much'"),
        ({"device": 7}, "nothing about GPU 7"),
    ],
)
def test_what_cannot_be_compared(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(OomctlError, match=message):
        api.diff(capture("healthy-steady"), capture("healthy-steady"), **arguments)  # type: ignore[arg-type]


def test_settings_that_differ() -> None:
    one, other = (
        snapshot([Op(1)], conf="max_split_size_mb:64"),
        snapshot([Op(1)], conf="max_split_size_mb:128,expandable_segments:True"),
    )
    changes = {c.name: (c.before, c.after) for c in api.diff(one, other).settings}
    assert changes == {"max_split_size_mb": ("64", "128"), "expandable_segments": (None, "True")}


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("kinds", ["report-report", "report-snapshot"])
def test_saved_reports_stand_in(kinds: str, swap: bool, tmp_path: Path) -> None:
    paths = []
    for name in ("healthy-steady", "losses-kept"):
        path = tmp_path / f"{name}.json"
        path.write_text(api.render(api.diagnose(capture(name), whatif=False), "json"), encoding="utf-8")
        paths.append(str(path))
    if kinds == "report-snapshot":
        paths[1] = capture("losses-kept")
    found = api.diff(*(reversed(paths) if swap else paths))
    assert found.measure == "active"
    assert found.change == sum(row.change for row in found.rows) != 0
    assert any("report keeps the largest places" in limit.reason for limit in found.limits)
    whole = api.diff(capture("healthy-steady"), capture("losses-kept"))
    assert abs(abs(found.change) - abs(whole.change)) < 64 * MIB


def test_a_report_against_its_own_snapshot_shows_no_change(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(api.render(api.diagnose(capture("kv-cat"), whatif=False), "json"), encoding="utf-8")
    found = api.diff(str(path), capture("kv-cat"))
    assert found.change == 0
    assert found.rows == ()


def grown() -> tuple[str, str]:
    return capture("healthy-steady"), capture("losses-kept")


@pytest.mark.parametrize("width", [80, 120])
def test_terminal(width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CAPTURES.parents[1])
    monkeypatch.setenv("COLUMNS", str(width))
    paths = [str(Path(p).relative_to(CAPTURES.parents[1])) for p in grown()]
    assert main(["diff", *paths, "--fail-if-grown", "2%"]) == 1
    printed = capsys.readouterr()
    check(HERE / "golden" / f"diff-{width}.txt", printed.out)
    assert "gate failed" in printed.err
    assert max(map(len, printed.out.split("\n"))) <= width


def test_markdown() -> None:
    found = api.diff(*grown())
    text = api.render_diff(
        replace(found, before=replace(found.before, inputs=()), after=replace(found.after, inputs=())), "markdown"
    )
    check(HERE / "golden" / "diff.md", text)


def test_json_follows_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", *grown(), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    jsonschema.validate(data, api.diff_schema())
    assert data["schema"] == "oomctl.diff/1"
    assert sum(row["change"] for row in data["rows"]) == data["change"]


def test_the_page_is_closed_and_small(tmp_path: Path) -> None:
    target = tmp_path / "diff.html"
    assert main(["diff", *grown(), "--html", str(target)]) == 0
    page = target.read_text(encoding="utf-8")
    assert len(page) < 300_000
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert page.count("<script") == 1
    assert len(re.findall(r'class="line s-c[12]"', page)) == 8  # two runs, two pictures, and their legends
    assert json.loads(re.findall(r'id="oomctl-diff">(.*?)</script>', page)[0])["schema"] == "oomctl.diff/1"


@pytest.mark.parametrize("name", ["</script><script>alert(1)</script>", "\x1b]8;;x\x07", "[bold]x[/]", "a|b`c\n# d"])
def test_names_are_only_text(name: str) -> None:
    from oomctl.model.stacks import Frame

    made = [snapshot([Op(size, (Frame(f"/a/{name}.py", 1, name),))]) for size in (MIB, 2 * MIB)]
    found = api.diff(*made)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", api.render_diff(found, "terminal"))
    assert "<script>alert" not in api.render_diff(found, "html")
    assert "\n# d" not in api.render_diff(found, "markdown")
    assert name not in api.render_diff(found, "text", redact="all")
