"""The machine is sick: full, read-only, closed, small, shared, foreign."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oomctl import _resources, api, files
from oomctl.cli import output, report
from oomctl.cli.main import main
from oomctl.errors import OomctlError
from oomctl.sources import reading

CAPTURES = Path(str(_resources.fixtures().joinpath("captures")))
SNAPSHOT = str(CAPTURES / "load-weights" / "snapshot.pickle.gz")
LOG = str(CAPTURES / "load-weights" / "stderr.log")

pytestmark = pytest.mark.skipif(os.name == "nt", reason="POSIX")


def oomctl(*args: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "oomctl", *args]
    return subprocess.run(command, check=False, **{"capture_output": True, **options})  # type: ignore[call-overload,no-any-return]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize(
    "args",
    [
        *(["diagnose", SNAPSHOT, "-f", fmt] for fmt in ("terminal", "json", "html")),
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["diagnose", "--help"],
        ["explain"],
    ],
    ids=lambda args: " ".join(args[::-1][:2]),
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_under_stdout(args: list[str], unbuffered: str) -> None:
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as full:
        done = oomctl(*args, stdout=full, stderr=subprocess.PIPE, capture_output=False, env=env)
    assert done.returncode == 2
    assert done.stderr == b"error: cannot write to stdout: No space left on device\n"


@pytest.mark.parametrize("fmt", ["terminal", "json"])
def test_a_pipe_that_nobody_reads(fmt: str) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = oomctl("diagnose", SNAPSHOT, "-f", fmt, stdout=write, stderr=subprocess.PIPE, capture_output=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_no_streams_at_all() -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -m oomctl diagnose "{SNAPSHOT}" <&- >&- 2>&-'], check=False
    )
    assert done.returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "cp437", "cp932"])
def test_no_home_no_locale_and_an_old_code_page(encoding: str) -> None:
    env = {"PATH": os.environ.get("PATH", ""), "PYTHONIOENCODING": encoding, "COLUMNS": "40", "LC_ALL": "C"}
    done = oomctl("diagnose", SNAPSHOT, LOG, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "capacity" in done.stdout.decode(encoding)
    data = json.loads(oomctl("diagnose", SNAPSHOT, "--json", env=env).stdout.decode(encoding))
    assert data["verdict"]["class"] == "capacity"


@pytest.mark.parametrize("columns", [40, 50, 60])
def test_lines_keep_to_the_columns_asked_for(columns: int) -> None:
    """In a pipe, too; only what has no spaces to break at, or is to be pasted, sticks out."""
    env = {**os.environ, "PYTHONIOENCODING": "cp1252", "COLUMNS": str(columns), "LC_ALL": "C"}
    done = oomctl("diagnose", "-v", str(CAPTURES / "kv-cat" / "snapshot.pickle.gz"), env=env)
    lines = done.stdout.decode("cp1252").splitlines()
    assert all(len(line) <= columns or "export PYTORCH" in line or " = torch." in line for line in lines)
    assert any(line.endswith("serve_kv.py:27 decode") for line in lines)
    piped = oomctl("diagnose", SNAPSHOT, env={k: v for k, v in os.environ.items() if k != "COLUMNS"})
    assert piped.stdout.splitlines()[0].startswith(b"error[")
    assert len(piped.stdout.splitlines()[0]) > 80


def test_a_pipe_that_is_waited_for_is_no_target(tmp_path: Path) -> None:
    """A named pipe is refused at once; a descriptor that the shell handed over is written to."""
    os.mkfifo(tmp_path / "pipe")
    done = oomctl("diagnose", SNAPSHOT, "--html", str(tmp_path / "pipe"), timeout=60)
    assert done.returncode == 2
    assert b"it is no file" in done.stderr.splitlines()[0]
    for target in ("/dev/stdout", "/dev/fd/1"):
        done = oomctl("diagnose", SNAPSHOT, "-f", "json", "--html", target, timeout=60)
        assert (done.returncode, b"</html>" in done.stdout) == (0, True)
    assert oomctl("diagnose", SNAPSHOT, "--html", "/dev/null").returncode == 0


def test_an_input_that_would_be_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is made up while it is read, such as the kernel's log, ends where there is nothing more yet."""
    read, write = os.pipe()
    os.write(write, b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    empty = tmp_path / "kmsg"
    empty.write_bytes(b"")
    made_up = os.stat(empty)
    monkeypatch.setattr(os, "fstat", lambda _: made_up)
    try:
        assert len(api.load(f"/dev/fd/{read}").oom_events) == 1
    finally:
        os.close(write)
        os.close(read)


@pytest.mark.parametrize("there", [False, True])
def test_an_interrupt_leaves_no_pages(there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "new" / "pages"
    if there:
        target.mkdir(parents=True)
        (target / "old.html").write_text("old")
    original = output.write_file
    written: list[str] = []

    def interrupted(path: str, text: str) -> int:
        if written:
            raise KeyboardInterrupt
        written.append(path)
        return original(path, text)

    command = ["diagnose", str(CAPTURES / "load-weights"), str(CAPTURES / "kv-cat"), "--pages", str(target), "-j", "1"]
    monkeypatch.setattr(report, "write_file", interrupted)
    assert main(command) == 130
    assert written
    left = [path.name for path in tmp_path.rglob("*")]
    assert sorted(left) == (["new", "old.html", "pages"] if there else [])
    monkeypatch.setattr(report, "write_file", original)
    assert main(command) == 0
    pages = sorted(path.name for path in target.iterdir())
    assert len(pages) > 1 + there
    assert all(name.endswith(".html") for name in pages)
    assert target.stat().st_mode & 0o777 == (0o777 & ~files._umask())


def test_the_folder_is_gone(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'cd "{gone}" && rmdir "{gone}" && "{sys.executable}" -P -m oomctl diagnose "{SNAPSHOT}" -o report.html'
    if sys.version_info < (3, 11):
        script = script.replace(" -P ", " ")
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"cannot write" in done.stderr.splitlines()[0]


def test_too_little_memory() -> None:
    """Under a limit that holds Python and no more, the answer is a report or a line, never a traceback."""
    resource = pytest.importorskip("resource")
    for limit in (250, 350, 500):
        done = oomctl(
            "diagnose",
            str(CAPTURES / "kv-cat" / "snapshot.pickle.gz"),
            preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_AS, (limit << 20,) * 2),
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode in (0, 2)
        assert b"Traceback" not in done.stderr


def test_two_runs_write_one_file(tmp_path: Path) -> None:
    """Whoever is last wins; the file is always one whole report."""
    target = tmp_path / "report.json"
    command = [sys.executable, "-m", "oomctl", "diagnose", SNAPSHOT, "-o", str(target)]
    runs = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]
    assert [run.wait() for run in runs] == [0, 0]
    assert json.loads(target.read_text())["verdict"]
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


@pytest.mark.parametrize("change", ["grows", "is cut", "is overwritten"])
def test_a_file_that_changes_while_it_is_read(change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is read is one snapshot or a refusal; a second look, where one is needed, may find other bytes."""
    data = gzip.decompress(Path(SNAPSHOT).read_bytes())
    other = gzip.decompress((CAPTURES / "crowded-early" / "snapshot.pickle.gz").read_bytes())
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(data)
    original = reading._chunks

    def changing(file):  # type: ignore[no-untyped-def]
        for number, chunk in enumerate(original(file)):
            yield chunk[: len(chunk) // 2] if number == 0 and change == "is cut" else chunk
            if change == "grows":
                path.write_bytes(data + other)
            elif change == "is overwritten":
                path.write_bytes(other)

    monkeypatch.setattr(reading, "_chunks", changing)
    try:
        said = [limit.reason for limit in api.diagnose(str(path)).limits]
    except OomctlError as error:
        said = [error.message]
    assert not any("\n" in line for line in said)
    assert change != "is cut" or any("breaks off" in line for line in said)


def test_a_log_that_is_still_written(tmp_path: Path) -> None:
    """A growing log is read to where it ends at that moment."""
    path = tmp_path / "train.log"
    path.write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    enough = threading.Event()

    def write() -> None:
        with path.open("a") as file:
            while not enough.is_set():
                file.write("step 1 loss 0.1\n" * 100)
                file.flush()
                enough.wait(0.001)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert len(api.load(str(path)).oom_events) == 1
    finally:
        enough.set()
        writer.join()
