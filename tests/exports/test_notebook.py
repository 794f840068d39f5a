"""What a notebook shows: complete, offline, and nothing from a file as markup."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

import oomctl
from oomctl import api
from oomctl.model.common import InputFile, Skipped, VersionRange
from oomctl.units import format_size

from . import cases

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


class Tags(HTMLParser):
    """Every tag of a fragment, and the documents in its frames."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_report_shows_its_page() -> None:
    report = oomctl.diagnose(cases.evidence("batch-too-large"))
    shown = report._repr_html_()
    assert shown is not None
    found = Tags(shown)
    assert found.open == []
    frames = [attrs for tag, attrs in found.tags if tag == "iframe"]
    assert [tag for tag, _ in found.tags] == ["p", "b", "iframe"]
    assert frames[0]["srcdoc"] == api.render(report, "html")
    assert frames[0]["sandbox"] == "allow-scripts"
    assert report.verdict.headline.split()[0] in shown


def test_a_snapshot_shows_its_sums() -> None:
    snapshot = cases.evidence("kv-cat").snapshots[0]
    shown = snapshot._repr_html_()
    assert shown is not None
    assert Tags(shown).open == []
    cells = re.findall(r"<td>(.*?)</td>", shown)
    segments = snapshot.devices[0].segments
    trace = snapshot.devices[0].trace
    assert trace is not None
    assert cells[1] == format_size(int(segments.size.sum()))
    assert cells[6] == f"{len(trace):,}"
    assert cells[7] == "1"


@pytest.mark.parametrize("name", cases.NAMES)
def test_evidence_shows_its_files(name: str) -> None:
    shown = cases.evidence(name)._repr_html_()
    assert shown is not None
    assert "snapshot.pickle.gz" in shown
    assert "http" not in shown


def test_nothing_from_a_file_is_markup() -> None:
    source = cases.evidence("batch-too-large")
    snapshot = source.snapshots[0]
    settings = snapshot.settings
    assert settings is not None
    hostile = replace(
        source,
        inputs=(InputFile(HOSTILE, HOSTILE, HOSTILE, VersionRange(), None, 1),),
        snapshots=(replace(snapshot, settings=replace(settings, conf=HOSTILE), skipped=(Skipped(HOSTILE, HOSTILE),)),),
    )
    report = oomctl.diagnose(source, whatif=False)
    verdict = replace(report.verdict, headline=HOSTILE)
    for shown in (hostile._repr_html_(), replace(report, verdict=verdict)._repr_html_()):
        assert shown is not None
        assert not {"script", "img"} & {tag for tag, _ in Tags(shown).tags}
