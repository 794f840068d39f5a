"""`oomctl explain`: questions lead to the right page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomctl.api import explanations
from oomctl.cli.main import main
from oomctl.model.pages import exact_page, find_pages
from tests import golden

PAGES = [page for _, pages in explanations() for page in pages]
GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize(
    ("question", "slug"),
    [
        ("reserved is 24 GiB, allocated 18, is that a leak?", "reserved-vs-allocated"),
        ("Allocated vs. reserved", "reserved-vs-allocated"),
        ("four numbers", "four-numbers"),
        ("FOUR_NUMBERS", "four-numbers"),
        ("what do the four numbers mean", "four-numbers"),
        ("why does my memory grow every epoch", "leak-hunting"),
        ("nvidia-smi says there is room", "nvidia-smi"),
        ("how is a snapshot recorded?", "reading-a-snapshot"),
        ("snapshot", "reading-a-snapshot"),
        ("is expandable better than classic segments", "classic-and-expandable"),
        ("what is non-releasable memory", "non-releasable-memory"),
        ("GPU reserved memory", "gpu-reserved-memory"),
        ("max_split_size", "max_split_size_mb"),
        ("expandable segments", "expandable_segments"),
        ("PYTORCH_ALLOC_CONF", "settings"),
        ("PYTORCH_CUDA_ALLOC_CONF is deprecated", "settings"),
        ("stream", "streams"),
        ("cuda graphs take so much memory", "graph-pools"),
        ("oom101", "split_segments"),
        ("fragmentation", "fragmentation"),
        ("leak", "leak"),
        ("Tried to allocate 20.00 MiB", "error-message"),
        ("memory_summary", "memory-summary"),
        ("how can I reduce memory", "saving-memory"),
    ],
)
def test_question(question: str, slug: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *question.split(), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["page"]["slug"] == slug


def test_answer_to_the_newcomer(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "reserved is 24 GiB, allocated 18, is that a leak?"]) == 0
    text = capsys.readouterr().out
    assert "No, not by itself." in text
    golden.check(GOLDEN / "reserved-vs-allocated.txt", text)


def test_list_names_every_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    words = {word for line in lines for word in line.split()}
    assert {page.slug for page in PAGES} <= words
    assert max(map(len, lines)) <= 80
    assert main(["explain", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["pages"]) == len(PAGES)


def test_nothing_found(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "xyzzy\x1b[31m"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: no page about")
    assert "\x1b" not in captured.err


@given(st.text(max_size=300))
@settings(max_examples=50, deadline=None)
def test_any_question_is_answered_or_not(question: str) -> None:
    found = find_pages(PAGES, question)
    assert len(found) == len({page.slug for page in found})
    exact = exact_page(PAGES, question)
    assert exact is None or exact in PAGES
