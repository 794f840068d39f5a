"""The HTML and markdown reports as files: nothing from an input becomes markup, the page is small and reads back."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomctl.model.report import Band, Mark, Piece, Report, StepRow, Steps
from oomctl.report import render
from oomctl.report.charts import map_scale, y_axis
from oomctl.report.json import from_text
from oomctl.report.markdown import block, code, escape
from oomctl.report.redact import redact
from oomctl.report.thin import FULL, Caps, evenly, keep, thin

from .samples import GIB, MIB, SAMPLES, fragmentation, hostile, leak, text_only

NASTY = [
    "</script><script>alert(1)</script>", "\"' onload=alert(1) x='", "<!--", "\u2028\u2029", "\ud800\x00", "{{ 7*7 }}",
    "]]>", "&lt;b&gt;", "\u202e\u05d0", "\U0001f4a5", "z" * 10_000,
]  # fmt: skip


class Tags(HTMLParser):
    """Counts elements and keeps attributes that could run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.bad: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.bad += [name for name, value in attrs if name.startswith("on") or name in ("style", "src", "srcset")]
        self.bad += [value or "" for name, value in attrs if name == "href" and not (value or "").startswith("#")]


def big(ranks: int) -> Report:
    """A report of a million events with all that a snapshot can hold."""
    points = 2000
    event = tuple(range(0, points * 500, 500))
    values = tuple((i * 7919) % (9 * GIB) for i in range(points))
    base = fragmentation()
    assert base.timeline is not None
    assert base.segment_map is not None
    bands = tuple(Band(f"model/layer_{i}.py:{i} forward", i, values) for i in range(9))
    timeline = replace(
        base.timeline,
        event=event,
        time_us=tuple(1_764_000_000_000_000 + e for e in event),
        active=tuple(9 * v for v in values),
        reserved=tuple(9 * v + GIB for v in values),
        bands=bands,
        steps=tuple(Mark(e, f"ProfilerStep#{i}") for i, e in enumerate(event)),
        events_total=1_000_000,
    )
    segment = replace(
        base.segment_map.segments[0], pieces=tuple(Piece(MIB, "live", i % 9, "a.py:1 f") for i in range(20))
    )
    rows = tuple(StepRow(i, f"ProfilerStep#{i}", i, i + 1, 3 * GIB, 5 * GIB) for i in range(2000))
    one = replace(
        base,
        timeline=timeline,
        segment_map=replace(base.segment_map, segments=(segment,) * 1500),
        steps=Steps("annotation", "ProfilerStep", rows, 2000),
        culprits=tuple(replace(base.culprits[0], rank=i + 1, stack=base.culprits[0].stack * 20) for i in range(40)),
        memory_summaries=text_only().memory_summaries * 30,
        oom_events=base.oom_events * 200,
    )
    return replace(one, others=(one,) * (ranks - 1))


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_is_closed_and_reads_back(name: str) -> None:
    report = SAMPLES[name]()
    page = render(report, "html")
    tags = Tags(page)
    assert tags.tags["script"] == 2
    assert tags.bad == []
    assert len(tags.ids) == len(set(tags.ids))
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "").replace("http://e.vil", "")
    assert from_text(page) == redact(thin(report, FULL.shared(1 + len(report.others)))[0])
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    assert policy[1].startswith("default-src 'none';")
    for element, body in (("style", r"<style>(.*?)</style>"), ("script", r"<script>(.*?)</script>")):
        text = re.search(body, page, re.DOTALL)
        assert text is not None
        digest = base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode()
        assert f"{element}-src 'sha256-{digest}'" in policy[1]


@pytest.mark.parametrize("name", NASTY)
def test_names_stay_text(name: str) -> None:
    page = render(hostile(name), "html")
    plain = Tags(render(hostile("name"), "html"))
    tags = Tags(page)
    assert tags.tags == plain.tags
    assert tags.bad == []
    assert from_text(page).segment_map is not None


@pytest.mark.parametrize("ranks", [1, 8])
def test_small_enough_to_attach_and_says_what_was_dropped(ranks: int) -> None:
    report = big(ranks)
    page = render(report, "html")
    assert len(page.encode()) <= 300_000
    said = re.search(r'<p id="thinned">(.*?)</p>', page)
    assert said is not None
    for word in ("points of 1,000,000 events", "steps are kept", "segments, those with most idle memory first"):
        assert word in said[1]
    read = from_text(page)
    assert read.budget == report.budget
    assert len(read.others) == ranks - 1
    assert len(render(report, "markdown")) < 60_000


LIVE = [
    "@octocat", "#12", "owner/x#1", "GH-7", "www.e.vil", "https://e.vil/x", "!5", "`", "``a", ":tada:", "1. x", "- x",
    "<details>", "a|b", "\\`", "*b*", "__x",
]  # fmt: skip


@settings(max_examples=200)
@given(st.text(max_size=80) | st.sampled_from(LIVE))
def test_markdown_has_no_live_text(text: str) -> None:
    prose = escape(text)
    assert "<" not in prose
    for live in (
        r"@\w",
        r"#\w",
        r"(?<!\\)[`*_|~\[\]]",
        r"\bGH-\d",
        r"\bwww\.\w",
        r"https?:",
        r"^\d+[.)](\s|$)",
        r"^[-+=]",
    ):
        found = re.search(live, re.sub(r"\\\\", "/", prose))  # an escaped backslash keeps its neighbours apart
        assert not found, (live, prose)
    span = code(text)
    fence = re.match(r"`+", span)
    if text and fence:
        assert fence[0] not in re.findall(r"`+", span[len(fence[0]) : -len(fence[0])])
    assert block("a\n```\nb").startswith("````\n")


@pytest.mark.parametrize(
    ("text", "shortened"),
    [
        ("/home/ada/project/train.py", "~/project/train.py"),
        ("/home/ada/work/a/b/c/train.py", "…/b/c/train.py"),
        ("C:\\Users\\ada\\x\\train.py", "~/x/train.py"),
        ("/root/train.py", "~/train.py"),
        ("/mnt/nfs/team/secret/train.py", "…/team/secret/train.py"),
        ("/usr/lib/python3/site-packages/torch/nn/m.py", "…/site-packages/torch/nn/m.py"),
        ("train.py", "train.py"),
        ("src/train.py", "src/train.py"),
    ],
)
def test_paths_are_shortened(text: str, shortened: str) -> None:
    report = replace(fragmentation(), inputs=(replace(fragmentation().inputs[0], path=text),))
    assert redact(report).inputs[0].path == shortened


def test_homes_users_and_hosts_do_not_leak() -> None:
    base = fragmentation()
    said = "ada@node17 ran /data/ada/run.py on ip-10-0-0-1.ec2.internal (10.1.2.3); see https://docs.pytorch.org/docs"
    report = replace(base, verdict=replace(base.verdict, headline=said))
    for fmt in ("html", "markdown", "text"):
        text = render(report, fmt)
        for secret in ("ada", "node17", "10.1.2.3", "ec2"):
            assert not re.search(rf"\b{re.escape(secret)}\b", text), (fmt, secret)
        assert "docs.pytorch.org" in text.replace("\u2060", "").replace("\n", "")
    assert "/home/ada/project" in render(report, "json")
    assert "/home/ada" not in render(report, "json", redact="paths")


def test_all_names_are_hashed_alike() -> None:
    hashed = redact(leak(), "all")
    text = render(hashed, "json")
    for secret in ("kept_losses", "train.py", "model.py", "oom.pickle"):
        assert secret not in text
    assert "ProfilerStep" in text
    assert hashed.culprits[0].function == redact(leak(), "all").culprits[0].function
    assert hashed.culprits[1].function in hashed.verdict.headline
    assert redact(leak(), "none") == leak()


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=400), st.integers(2, 60))
def test_thinning_keeps_the_extremes_and_both_ends(values: list[int], most: int) -> None:
    kept = keep(values, most)
    assert kept == sorted(set(kept))
    assert {0, len(values) - 1} <= set(kept)
    assert len(kept) <= most + 3
    assert max(values[i] for i in kept) == max(values)
    assert min(values[i] for i in kept) == min(values)
    rows = evenly(len(values), most)
    assert rows[0] == 0
    assert rows[-1] == len(values) - 1
    assert len(rows) <= max(most, 2)


def test_thinning_drops_nothing_that_fits() -> None:
    for make in SAMPLES.values():
        report = make()
        thinned, said = thin(report, Caps(text=20_000))
        assert thinned == report
        assert all("points of" in sentence or "segments" in sentence for sentence in said)


@given(st.integers(0, 1 << 50))
def test_an_axis_has_few_round_ticks(highest: int) -> None:
    top, ticks = y_axis(highest)
    assert top >= highest
    assert 2 <= len(ticks) <= 6
    assert all(0 <= tick.at <= 100 for tick in ticks)


@given(st.lists(st.integers(1, 1 << 36), min_size=1, max_size=200), st.none() | st.integers(1, 1 << 37))
def test_every_segment_fits_on_a_shelf(sizes: list[int], need: int | None) -> None:
    scale = map_scale(sizes, need)
    assert scale >= max(sizes)
