"""Names from files come out of every renderer as plain text."""

from __future__ import annotations

import pickle
from html.parser import HTMLParser
from pathlib import Path

import pytest

from oomctl import api
from oomctl.errors import OomctlError
from tests.fuzz.case import _COLOUR, _CONTROL, _MARKUP
from tests.fuzz.names import NAMES
from tests.sources import convert

FORMATS = ("terminal", "text", "json", "html", "markdown")


class Elements(HTMLParser):
    """Counts elements and keeps what an element may do."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: dict[str, int] = {}
        self.deeds: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] = self.tags.get(tag, 0) + 1
        self.deeds += [name for name, value in attrs if name.startswith("on") or "javascript:" in (value or "")]


def named(name: str) -> dict:
    """A snapshot whose functions, files, settings and annotations all have one name."""
    data = convert.capture("first-step")
    frames = {id(f): f for e in data["device_traces"][0] for f in e.get("frames", ())}
    frames |= {id(f): f for s in data["segments"] for b in s["blocks"] for f in b.get("frames", ())}
    for frame in frames.values():
        frame["name"] = frame["filename"] = name
    data["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = data["allocator_settings"][name] = name
    data["external_annotations"] = [{"name": name, "stage": "START", "device": 0, "time_us": 1}]
    return data


def assert_harmless(fmt: str, shown: str) -> None:
    """No markup of a file's in a page, no control character of its in anything else."""
    if fmt == "html":
        assert not any(mark in shown for mark in _MARKUP)
    else:
        assert not _CONTROL.search(_COLOUR.sub("", shown)), fmt


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_snapshot_full_of_one_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(named(name)))
    evidence = api.load(str(path))
    report = api.diagnose(evidence, whatif=False)
    for redact in ("none", "all"):
        shown = {fmt: api.render(report, fmt, redact=redact) for fmt in FORMATS}
        for fmt in FORMATS:
            assert_harmless(fmt, shown[fmt])
        page = Elements()
        page.feed(shown["html"])
        assert not page.deeds
        assert page.tags.get("img", 0) == 0
    found = api.render_holdings(api.holdings(evidence), "terminal", columns=80, color=False, unicode=True)
    assert_harmless("terminal", found)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_comparison_with_a_snapshot_full_of_one_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(named(name)))
    found = api.diff(str(path), str(convert.CAPTURES / "first-step/snapshot.pickle.gz"))
    for fmt in FORMATS:
        shown = api.render_diff(found, fmt, redact="none")
        assert_harmless(fmt, shown)


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_a_log_full_of_one_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    text = f'Traceback (most recent call last):\n  File "{name}", line 3, in {name}\n    {name}\n'
    text += f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. {name}\n"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    if "\0" in name:  # then it reads as no text at all
        with pytest.raises(OomctlError, match="not a memory snapshot or a log"):
            api.load(str(path))
        return
    report = api.diagnose(str(path))
    for fmt in FORMATS:
        shown = api.render(report, fmt, redact="none")
        assert_harmless(fmt, shown)


def test_the_scripts_of_a_page_are_the_same_whatever_the_names(tmp_path: Path) -> None:
    tags = []
    for name in ("train", "</script><script>alert(1)</script>", "<svg onload=x>", "--><!--"):
        path = tmp_path / "snapshot.pickle"
        path.write_bytes(pickle.dumps(named(name)))
        page = Elements()
        page.feed(api.render(api.diagnose(str(path), whatif=False), "html", redact="none"))
        tags.append({tag: page.tags.get(tag, 0) for tag in ("script", "svg", "iframe", "img", "link", "style")})
    assert all(one == tags[0] for one in tags)
