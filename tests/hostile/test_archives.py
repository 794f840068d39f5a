"""Archives and folders that point elsewhere: nothing outside is read, nothing is written, nothing waits."""

from __future__ import annotations

import io
import os
import shutil
import stat
import zipfile
from pathlib import Path

import pytest

from oomctl import _resources, api
from oomctl.cli.main import main
from oomctl.errors import OomctlError

CAPTURES = Path(str(_resources.fixtures().joinpath("captures")))
SNAPSHOT = (CAPTURES / "load-weights" / "snapshot.pickle.gz").read_bytes()
SECRET = "root:x:0:0:CUDA out of memory. Tried to allocate 3.00 GiB"


def archive(path: Path, members: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in members.items():
            out.writestr(name, data)
        for name, target in (links or {}).items():
            info = zipfile.ZipInfo(name)
            info.external_attr = (stat.S_IFLNK | 0o777) << 16
            out.writestr(info, target)
    return path


@pytest.mark.parametrize(
    "name",
    ["../../up.pickle", "/etc/abs.pickle", "C:\\Windows\\x.pickle", "a/../../b.pickle", "..", "nul", "\x1b[2J.pickle"],
)
def test_members_that_climb_out(name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "in" / "here"
    folder.mkdir(parents=True)
    path = archive(folder / "a.zip", {name: SNAPSHOT, "plain.pickle": SNAPSHOT})
    assert main(["diagnose", str(path)]) == 0
    assert "\x1b" not in capfd.readouterr().out
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.zip", "here", "in"]


def test_a_zip_of_very_many_ranks(tmp_path: Path) -> None:
    path = archive(tmp_path / "job.zip", {f"rank{i}.pickle": b"" for i in range(4097)})
    with pytest.raises(OomctlError, match="a zip of 4,097 files"):
        api.diagnose_job(str(path))


def test_links_in_a_zip_are_not_followed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.log"
    secret.write_text(SECRET)
    path = archive(tmp_path / "a.zip", {"s.pickle": SNAPSHOT}, {"link.log": str(secret), "up.log": "secret.log"})
    evidence = api.load(str(path))
    assert evidence.oom_events == ()
    assert len(evidence.snapshots) == 1


def test_a_zip_whose_members_share_their_bytes(tmp_path: Path) -> None:
    """Many entries of the directory on the same compressed bytes: together they stay under the limit of one."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("a.log", b"words that read as text\n" * 400_000)
    data = inner.getvalue()
    start = data.index(b"PK\x01\x02")
    end = data.index(b"PK\x05\x06")
    entry, tail = data[start:end], bytearray(data[end:])
    count = 150
    tail[8:10] = tail[10:12] = count.to_bytes(2, "little")
    tail[12:16] = (len(entry) * count).to_bytes(4, "little")
    path = tmp_path / "a.zip"
    path.write_bytes(data[:start] + entry * count + bytes(tail))
    with pytest.raises(OomctlError) as caught:
        api.load(str(path))
    assert "\n" not in caught.value.message


def test_a_locked_zip(tmp_path: Path) -> None:
    path = archive(tmp_path / "a.zip", {"s.pickle": SNAPSHOT})
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(OomctlError, match=r"encrypted|password|unsupported"):
        api.load(str(path))


@pytest.mark.skipif(os.name == "nt", reason="POSIX")
def test_a_folder_with_pipes_devices_and_loops(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "dumps"
    folder.mkdir()
    for rank in (0, 1):
        shutil.copy(CAPTURES / "load-weights" / "snapshot.pickle.gz", folder / f"rank{rank}.pickle.gz")
    os.mkfifo(folder / "rank0.log")
    (folder / "rank1.log").symlink_to("/dev/zero")
    (folder / "rank2.pickle").symlink_to("/dev/urandom")
    (folder / "rank3.pickle").symlink_to("rank3.pickle")
    (folder / "everything").symlink_to("/")
    assert main(["diagnose", str(folder), "--jobs", "1"]) == 0
    assert "rank 1" in capfd.readouterr().out


def test_zips_within_zips(tmp_path: Path) -> None:
    data = b"words\n" * 1000
    for _ in range(12):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as inner:
            for number in range(10):
                inner.writestr(f"{number}.zip", data)
        data = out.getvalue()
    path = tmp_path / "a.zip"
    path.write_bytes(data)
    with pytest.raises(OomctlError, match="within each other"):
        api.load(str(path))
