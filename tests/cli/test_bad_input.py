"""Anything that is no snapshot and no log: one clear line, exit code 2, never a traceback, never a call."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from oomctl import _resources
from oomctl.cli.main import main

SNAPSHOT = _resources.fixtures().joinpath("captures/load-weights/snapshot.pickle.gz").read_bytes()


class Call:
    """Unpickles by making a file, as a stranger's snapshot could do worse."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return os.mkdir, (str(self.path),)


def zipped(names: dict[str, bytes]) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, data in names.items():
            archive.writestr(name, data)
    return stream.getvalue()


def nested(depth: int) -> bytes:
    return b"\x80\x04" + b"]" * depth + b"a" * (depth - 1) + b"."


STATE_DICT = b"\x80\x02ccollections\nOrderedDict\n)Rq\x00X\x06\x00\x00\x00weightctorch._utils\n_rebuild_tensor_v2\n)Rs."


def encrypted(names: dict[str, bytes]) -> bytes:
    """A zip whose entries say that they need a password."""
    data = bytearray(zipped(names))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(mark)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(mark, at + 1)
    return bytes(data)


BAD: dict[str, Callable[[Path], bytes]] = {
    "empty": lambda _: b"",
    "blank": lambda _: b"\n\n   \n",
    "random bytes": lambda _: random.Random(7).randbytes(5000),
    "a picture": lambda _: b"\x89PNG\r\n\x1a\n" + bytes(500),
    "an executable": lambda _: b"\x7fELF\x02\x01\x01" + bytes(500),
    "zeros": lambda _: bytes(4096),
    "a pickled number": lambda _: pickle.dumps(42),
    "a pickle of another dict": lambda _: pickle.dumps({"epoch": 3, "lr": 0.1}),
    "a pickle with a call": lambda spot: pickle.dumps({"segments": [], "device_traces": [], "x": Call(spot)}),
    "a compressed pickle with a call": lambda spot: gzip.compress(pickle.dumps([Call(spot)])),
    "an old checkpoint": lambda _: STATE_DICT,
    "a checkpoint": lambda _: zipped(
        {"model/data.pkl": STATE_DICT, "model/version": b"3\n", "model/data/0": bytes(64)}
    ),
    "an empty zip": lambda _: zipped({}),
    "a zip of pictures": lambda _: zipped({"a.png": b"\x89PNG\r\n\x1a\n"}),
    "an encrypted zip": lambda _: encrypted({"a.pickle": b"secret", "b.log": b"secret"}),
    "the first bytes of a snapshot": lambda _: gzip.decompress(SNAPSHOT)[:40],
    "a broken gzip": lambda _: SNAPSHOT[:30],
    "a damaged gzip": lambda _: SNAPSHOT[:20] + bytes(20) + SNAPSHOT[40:],
    "a pickle that wants a gigabyte": lambda _: b"\x80\x04r\xff\xff\xff\x0f.",
    "a pickle that announces a huge text": lambda _: b"\x80\x04\x8d\x00\x00\x00\x00\x00\x01\x00\x00.",
    "a deeply nested pickle": lambda _: nested(100_000),
    "other JSON": lambda _: json.dumps({"epoch": 3}).encode(),
    "a JSON list": lambda _: b"[1, 2, 3]",
    "deeply nested JSON": lambda _: b"[" * 100_000,
    "cut JSON": lambda _: b'{"segments": [{"address": 1',
    "another schema": lambda _: b'{"schema": "other.report/1"}',
    "a report of the future": lambda _: b'{"schema": "oomctl.report/99", "verdict": {}}',
}


def refused(args: list[str], capfd: pytest.CaptureFixture[str]) -> str:
    """Runs oomctl, which must refuse with one line and perhaps a hint; returns the line."""
    assert main(args) == 2
    out, err = capfd.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) in (1, 2), err
    assert lines[0].startswith("error: ")
    assert all(line.startswith("hint: ") for line in lines[1:])
    assert "Traceback" not in err
    return lines[0]


@pytest.mark.parametrize("kind", BAD)
def test_refused(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spot, path = tmp_path / "called", tmp_path / "given.pickle"
    path.write_bytes(BAD[kind](spot))
    line = refused(["diagnose", str(path)], capfd)
    assert "given.pickle" in line
    assert not spot.exists()


FOREIGN = {
    "a set": ({1, 2}, (4, 5)),
    "an empty set": (set(), (4, 5)),
    "sets in a set": ({(1, 2), frozenset([3])}, (4, 5)),
    "a frozenset": (frozenset([1]), (4, 5)),
    "bytes": (b"abc", (3, 4, 5)),
    "a bytearray": (bytearray(b"abc"), (5,)),
    "a number of more than 64 bits": (1 << 80, (2, 3, 4, 5)),
    "a tuple": (("a", "b", "c", "d"), (2, 3, 4, 5)),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_no_snapshot_holds_is_named(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A sound pickle is not called damaged; where the same bytes break off, it is."""
    value, protocols = FOREIGN[kind]
    path = tmp_path / "given.pickle"
    for protocol in protocols:
        data = pickle.dumps({"segments": [], "x": value, "device_traces": [[]]}, protocol=protocol)
        path.write_bytes(data)
        said = refused(["diagnose", str(path)], capfd)
        assert "a pickle that holds " in said
        assert kind.rpartition(" in ")[2].replace("an empty", "a") in said
        path.write_bytes(data[:-1])
        assert "damaged" in refused(["diagnose", str(path)], capfd)


def test_an_encrypted_zip_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for names in ({"a.pickle": b"secret"}, {"rank0.pickle": b"secret", "rank1.pickle": b"secret"}):
        (tmp_path / "given.zip").write_bytes(encrypted(names))
        assert main(["diagnose", str(tmp_path / "given.zip")]) == 2
        err = capfd.readouterr().err
        assert "the zip is encrypted" in err
        assert len(names) > 1 or "password" in err.splitlines()[1]
        assert "ZipInfo" not in err


def test_the_call_would_have_run(tmp_path: Path) -> None:
    """The same bytes do run under a plain unpickler: the test above tests something."""
    pickle.loads(BAD["a pickle with a call"](tmp_path / "called"))
    assert (tmp_path / "called").is_dir()


@pytest.mark.parametrize("kind", [kind for kind in BAD if "report" not in kind])  # which is read back alone
def test_a_log_beside_it_is_read(kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    spot, given = tmp_path / "called", tmp_path / "given.pickle"
    given.write_bytes(BAD[kind](spot))
    log = _resources.fixtures().joinpath("captures/load-weights/stderr.log")
    assert main(["diagnose", "--json", str(given), str(log)]) == 0
    report = json.loads(capfd.readouterr().out)
    assert report["oom_events"][0]["tried_to_allocate"] == 128 << 20
    if kind != "blank":  # a text, which may say nothing
        assert "one of the inputs" in {limit["what"] for limit in report["limits"]}
    assert not spot.exists()


@pytest.mark.parametrize("name", ["missing.pickle", "empty", "no\nsuch\x1b[31m"])
def test_paths_that_hold_nothing(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    line = refused(["diagnose", str(tmp_path / name)], capfd)
    assert "\x1b" not in line


@pytest.mark.parametrize("fmt", ["json", "html", "markdown", "text", "terminal"])
def test_no_format_turns_a_refusal_into_output(fmt: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "given.pickle").write_bytes(b"\x80\x04N.")
    target = tmp_path / "report.html"
    refused(["diagnose", "--format", fmt, "-o", str(target), str(tmp_path / "given.pickle")], capfd)
    assert not target.exists()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 0.999])
def test_a_snapshot_cut_short_is_read_in_part_or_refused(
    share: float, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = gzip.decompress(SNAPSHOT)
    path = tmp_path / "cut.pickle"
    path.write_bytes(data[: int(len(data) * share)])
    code = main(["diagnose", "--json", str(path)])
    out, err = capfd.readouterr()
    assert code in (0, 2)
    assert "Traceback" not in err
    if code == 0:
        assert json.loads(out)["limits"], "what was lost is said"
