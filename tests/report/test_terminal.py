"""The terminal report: golden outputs, widths, plainness, and names that would like to be more than text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomctl.errors import OomctlError
from oomctl.report import render
from oomctl.report.terminal_page import spread
from oomctl.report.texts import width as columns

from ..golden import check
from .samples import SAMPLES, fragmentation, hostile, ranks

GOLDEN = Path(__file__).parent / "golden"
CASES = [
    *((name, "terminal", {"width": width}) for name in SAMPLES for width in (80, 120)),
    ("fragmentation", "terminal", {"verbose": True, "width": 120}),
    ("leak", "terminal", {"unicode": False}),
    ("text_only", "terminal", {"verbose": True}),
    ("ranks", "text", {"redact": "all"}),
    *((name, "markdown", {}) for name in SAMPLES),
]
CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
nasty = st.text(max_size=200) | st.sampled_from([
    "\x1b]8;;http://e.vil\x1b\\x\x1b]8;;\x1b\\", "\x9b31m", "a\nb\rc", "[bold red]x[/]", ":fire:", "\u202eabc",
    "名前" * 90,
    "a" * 10_000, "/" * 300, "\ud800", "x" * 200 + ".py", "\0",
])  # fmt: skip


@pytest.mark.parametrize(("name", "fmt", "options"), CASES)
def test_golden(name: str, fmt: str, options: dict[str, object]) -> None:
    marks = "".join(f"-{value if key == 'width' else key}" for key, value in sorted(options.items()))
    file = GOLDEN / f"{name}{marks}.{'md' if fmt == 'markdown' else 'txt'}"
    check(file, render(SAMPLES[name](), fmt, **options))


@pytest.mark.parametrize("name", SAMPLES)
def test_the_verdict_is_the_first_line_of_a_pipe(name: str) -> None:
    report = SAMPLES[name]()
    first = render(report, whole_verdict=True).split("\n")[0]
    assert re.match(r"(error|warning|ok)\[OOM\d{3}\] " + report.verdict.cls + ": ", first)
    if name != "hostile":
        assert first.endswith(report.verdict.headline)


@settings(deadline=None, max_examples=60)
@given(nasty, st.sampled_from([80, 93, 120]), st.booleans(), st.booleans())
def test_names_are_only_text_and_lines_keep_to_the_width(name: str, wide: int, verbose: bool, unicode: bool) -> None:
    text = render(hostile(name), width=wide, verbose=verbose, unicode=unicode)
    assert not CONTROLS.search(text)
    text.encode("utf-8" if unicode else "ascii")
    pasted = [remedy.env for remedy in fragmentation().remedies if remedy.env]
    for line in text.split("\n"):
        assert columns(line) <= wide or line.strip() in pasted, line


@pytest.mark.parametrize("name", SAMPLES)
def test_colour_changes_nothing_but_colour(name: str) -> None:
    report = SAMPLES[name]()
    coloured = render(report, color=True)
    assert "\x1b[" in coloured
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == render(report)


def test_numbers_are_never_cut() -> None:
    text = render(hostile("n" * 500), width=80)
    for number in ("6.31 GiB", "70.00 MiB", "20.00 MiB", "6.40 GiB", "123.11 GiB", "139.80 GiB", "718", "98.6%"):
        assert number in text


def test_the_shown_culprits_and_the_rest_sum() -> None:
    base = fragmentation()
    many = tuple(base.culprits[i % 2] for i in range(20))
    from dataclasses import replace

    text = render(replace(base, culprits=many))
    assert "+ 14 more places and 4 other blocks" in text
    assert "-v shows the other devices" in render(ranks())


def test_no_such_format_or_redaction() -> None:
    with pytest.raises(OomctlError, match="no format 'pdf'"):
        render(fragmentation(), "pdf")
    with pytest.raises(OomctlError, match="no redaction 'some'"):
        render(fragmentation(), redact="some")


@given(st.lists(st.just(0.0) | st.floats(1e-9, 1), min_size=1, max_size=11), st.integers(12, 120))
def test_parts_of_a_bar_fill_it(shares: list[float], wide: int) -> None:
    cells = spread(shares, wide)
    if sum(shares) > 0:
        assert sum(cells) == wide
        assert all(cell for cell, share in zip(cells, shares, strict=True) if share > 0)
