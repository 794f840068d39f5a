"""Files are written whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from oomctl.cli import output
from oomctl.cli.output import check_target, write_file
from oomctl.errors import OomctlError


def test_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        write_file(str(tmp_path / "r.html"), "ä\ud800")
    finally:
        os.umask(umask)
    assert (tmp_path / "r.html").read_bytes() == "ä?".encode()
    assert stat.S_IMODE((tmp_path / "r.html").stat().st_mode) == 0o640


def test_overwriting_keeps_mode_and_follows_links(tmp_path: Path) -> None:
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o604)
    link.symlink_to(target)
    write_file(str(link), "new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert stat.S_IMODE(target.stat().st_mode) == 0o604


@pytest.mark.parametrize("fails", ["fsync", "replace", "chmod"])
def test_a_failure_leaves_the_old_file_and_no_rest(fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "r.json").write_text("old")
    monkeypatch.setattr(output.os, fails, full)
    with pytest.raises(OomctlError, match="No space left on device"):
        write_file(str(tmp_path / "r.json"), "new")
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]
    assert (tmp_path / "r.json").read_text() == "old"


def test_an_input_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "snapshot.json").write_text("evidence")
    (tmp_path / "link.json").symlink_to(tmp_path / "snapshot.json")
    with pytest.raises(OomctlError, match="one of the inputs"):
        check_target(str(tmp_path / "link.json"), ["-", str(tmp_path / "snapshot.json")])


def test_a_check_leaves_nothing_behind(tmp_path: Path) -> None:
    check_target(str(tmp_path / "new.json"), ["-"])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("write", [lambda path: write_file(path, "x"), check_target], ids=["write", "check"])
@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no/such/r.html", "No such file"),
        ("file/r.html", "Not a directory"),
        ("pipe", "it is no file"),
        ("folder", "it is a directory"),
    ],
)
def test_impossible_targets(write: Callable[[str], object], target: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OomctlError, match=message) as raised:
        write(str(tmp_path / target))
    assert raised.value.hint


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's devices")
def test_devices_are_written_to_directly() -> None:
    write_file("/dev/null", "x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    with pytest.raises(OomctlError, match="No space left"):
        write_file("/dev/full", "x")
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)


def test_a_directory_is_no_target(tmp_path: Path) -> None:
    with pytest.raises(OomctlError, match="directory"):
        write_file(str(tmp_path), "x")
