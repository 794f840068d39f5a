"""`oomctl whatif` from end to end."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from oomctl import api
from oomctl.cli.main import main
from tests import golden
from tests.allocator.test_selftest import CAPTURES, DATA

GOLDEN = Path(__file__).parent / "golden"
Captured = pytest.CaptureFixture[str]


def paths(name: str, *, log: bool = False) -> list[str]:
    if name == "conv":
        return [str(DATA / "conv.pickle.gz")]
    folder = next(p for p in CAPTURES if p.name == name)
    return [str(folder / f) for f in ("snapshot.pickle.gz", "stderr.log")[: 1 + log]]


def printed(args: list[str], capfd: Captured, code: int = 0) -> str:
    assert main(["whatif", *args]) == code
    out, err = capfd.readouterr()
    assert err == "" or code
    return out or err


@pytest.mark.parametrize(
    ("case", "name", "args"),
    [
        ("log-beside-it", "varlen-train", []),
        ("limit-left-open", "varlen-train", ["--conf", "expandable_segments:True", "--conf", ""]),
        ("nothing-helps", "batch-too-large", []),
        ("healthy", "conv", []),
        ("fit", "conv", ["--fit", "--conf", "", "--conf", "expandable_segments:True"]),
        ("ring", "losses-kept-ring", ["--limit", "24GiB"]),
    ],
)
def test_pages(case: str, name: str, args: list[str], capfd: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = printed([*args, *paths(name, log=case == "log-beside-it")], capfd)
    assert all(len(line) <= 80 for line in page.splitlines())
    assert "cure" not in page
    golden.check(GOLDEN / f"{case}.txt", page)


def test_json(capfd: Captured) -> None:
    text = printed(["--json", "--conf", "", "--conf", "expandable_segments:True", *paths("kv-cat")], capfd)
    data = json.loads(text)
    jsonschema.validate(data, api.whatif_schema())
    assert data["schema"] == "oomctl.whatif/1"
    assert data["identity"]["exact"] == data["identity"]["allocs"] == 17471
    runs = {run["alloc_conf"]: run for run in data["runs"]}
    assert set(runs) == {"", "expandable_segments:True"}
    assert runs["expandable_segments:True"]["served"] is True
    assert runs[""]["served"] is False
    assert runs[""]["retries"] == 2
    keys = {"alloc_conf", "peak_reserved", "peak_allocated", "served", "oom", "retries", "device_allocs", "notes"}
    assert keys <= set(runs[""])
    assert text == printed(["--json", "--conf", "", "--conf", "expandable_segments:True", *paths("kv-cat")], capfd)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--limit", "lots", *paths("kv-cat")], "24GiB"),
        (["--device", "5", *paths("kv-cat")], "GPU 5"),
        ([str(next(p for p in CAPTURES if p.name == "kv-cat") / "stderr.log")], "snapshot"),
    ],
)
def test_what_cannot_be_replayed(args: list[str], words: str, capfd: Captured) -> None:
    said = printed(args, capfd, code=2)
    assert words in said
    assert "Traceback" not in said
