"""What a recording writes when the device is full, and when it is asked to; on a stand-in for torch."""

from __future__ import annotations

import json
import os
import signal
import zipfile
from pathlib import Path

import pytest

import oomctl
from tests.recorder.running import HERE, bundles, incident, others, python, run, said, snapshot

FILL = HERE / "jobs" / "fill.py"
FILES = {"incident.json", "snapshot.pickle", "message.txt", "stack.txt", "memory_summary.txt", "memory_stats.json"}


def test_a_failure(tmp_path: Path) -> None:
    done = run("-d", "out", FILL, cwd=tmp_path)
    alone = python(FILL, cwd=tmp_path, fake=True)
    assert (done.returncode, others(done.stderr)) == (alone.returncode, others(alone.stderr))
    (bundle,) = bundles(tmp_path / "out")
    assert bundle.name.startswith("oom-")
    assert bundle.name.endswith("Z-rank0")
    assert {p.name for p in bundle.iterdir()} == FILES
    facts = incident(bundle)
    assert facts["schema"] == "oomctl.incident/1"
    assert (facts["cause"], facts["moment"], facts["message"]) == ("oom", "at", "message.txt")
    assert facts["request"] == {"segment_size": 100_000, "allowed_or_total": 1 << 20, "device_free": 48_576}
    assert (facts["allocated"], facts["reserved"]) == (1_000_000, 1_000_000)
    assert facts["mem_get_info"] == {"free": 48_576, "total": 1 << 20}
    assert facts["step"] == {"number": 10, "source": "optimizer"}
    assert (facts["torch"], facts["rank"], facts["oom_count"], facts["notes"]) == ("2.11.0+fake", None, 1, [])
    assert facts["device"]["name"] == "Fake H1"
    assert facts["recording"]["context"] == "alloc"  # stacks of frees break activation checkpointing
    # Nothing was unwound: the file holds what the message counted, and its last event is the failure.
    state = snapshot(bundle)
    assert sum(s["allocated_size"] for s in state["segments"]) == facts["allocated"]
    assert state["device_traces"][0][-1]["action"] == "oom"
    assert (bundle / "message.txt").read_text() == "\n".join(others(done.stderr)) + "\n"
    stack = (bundle / "stack.txt").read_text()
    assert "in grow" in stack
    assert str(Path(oomctl.__file__).parent) not in stack
    assert said(done.stderr) == [
        line for line in said(done.stderr) if "out of memory, cuda device 0 at step 10: wrote" in line
    ]


def test_it_is_read_as_one_incident(tmp_path: Path) -> None:
    run("-d", "out", FILL, cwd=tmp_path, PYTORCH_CUDA_ALLOC_CONF="max_split_size_mb:64")
    run("-d", "zip", "--zip", FILL, cwd=tmp_path)
    run("-d", "caught", FILL, "survive", "1", cwd=tmp_path)
    (bundle,), (packed,), (caught,) = (bundles(tmp_path / name) for name in ("out", "zip", "caught"))
    evidence = oomctl.load(str(bundle))
    assert [i.kind for i in evidence.inputs][:3] == ["incident", "snapshot", "oom_log"]
    assert len(evidence.snapshots) == 1
    assert len(evidence.oom_events) == 1
    assert evidence.conf == "max_split_size_mb:64"
    assert str(evidence.torch) == "2.11"
    assert len(oomctl.load(str(packed)).oom_events) == 1
    assert not (caught / "message.txt").exists()
    (event,) = oomctl.load(str(caught)).oom_events
    assert (event.tried_to_allocate, event.free, event.total_capacity) == (100_000, 48_576, 1 << 20)
    assert (event.allocated, event.reserved_unallocated, event.allowed) == (1_000_000, 0, None)
    assert oomctl.diagnose(str(bundle)).verdict.cls != "no_oom"


def test_a_zip_holds_the_same_files(tmp_path: Path) -> None:
    run("-d", "out", "--zip", FILL, cwd=tmp_path)
    (packed,) = bundles(tmp_path / "out")
    with zipfile.ZipFile(packed) as archive:
        assert set(archive.namelist()) == FILES
        assert json.loads(archive.read("incident.json"))["message"] == "message.txt"


@pytest.mark.parametrize(("most", "kept"), [(0, 0), (1, 1), (2, 2), (9, 5)])
def test_failures_that_the_program_survives(most: int, kept: int, tmp_path: Path) -> None:
    done = run("-d", "out", "--max-dumps", str(most), FILL, "survive", "5", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "survived 5\n")
    found = [incident(bundle)["oom_count"] for bundle in bundles(tmp_path / "out")]
    assert len(found) == kept
    assert found[: max(0, most - 1)] == list(range(1, min(most, 6)))  # the first ones
    assert not most or 5 in found  # and the latest
    assert ("5 requests failed" in done.stderr) == (kept < 5)


def test_a_failure_in_a_thread(tmp_path: Path) -> None:
    done = run("-d", "out", FILL, "thread", cwd=tmp_path)
    assert done.returncode == 0
    (bundle,) = bundles(tmp_path / "out")
    assert "torch.OutOfMemoryError: CUDA out of memory" in (bundle / "message.txt").read_text()
    assert "Thread-1" in (bundle / "stack.txt").read_text().splitlines()[0]


@pytest.mark.parametrize(
    ("options", "job", "causes"),
    [
        (["--at-exit"], ["stop"], ["exit"]),
        (["--at-exit"], [], ["exit", "oom"]),
        (["--signal", "usr2"], ["stop", "signal"], ["signal"]),
        (["--watermark", "70%", "--lines", "1"], [], ["oom", "watermark"]),
        (["--watermark", "300KiB"], ["stop", "sleep", "2.5"], ["watermark"]),
        (["--watermark", "99%"], ["stop"], []),
        (["--minutes", "0.02"], ["stop", "sleep", "1.8"], ["interval"]),
    ],
    ids=str,
)
def test_on_request(options: list[str], job: list[str], causes: list[str], tmp_path: Path) -> None:
    done = run("-d", "out", *options, FILL, *job, cwd=tmp_path)
    assert done.returncode == (0 if "stop" in job else 1)
    found = bundles(tmp_path / "out")
    assert sorted({incident(bundle)["cause"] for bundle in found}) == causes
    assert all(b.name.startswith("oom-" if incident(b)["cause"] == "oom" else "state-") for b in found)


def test_a_signal_in_the_middle_of_a_dump(tmp_path: Path) -> None:
    program = limited(
        tmp_path,
        "import torch, os, signal; torch.memory._snapshot = lambda: os.kill(os.getpid(), signal.SIGUSR2)",
    )
    assert run("-d", "out", "--signal", "USR2", program, cwd=tmp_path).returncode == 1
    (bundle,) = bundles(tmp_path / "out")
    assert {p.name for p in bundle.iterdir()} == FILES


def test_a_signal_that_the_program_handles_too(tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text(
        "import os, signal, torch\n"
        "torch.empty(10)\n"
        "before = signal.getsignal(signal.SIGUSR2)\n"
        "signal.signal(signal.SIGUSR2, lambda *args: (print('own'), before(*args)))\n"
        "os.kill(os.getpid(), signal.SIGUSR2)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    signal.signal(signal.SIGUSR2, before)\n"
        "    os.kill(os.getpid(), signal.SIGUSR2)\n"
        "    os._exit(9)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGUSR2)\n"
    )
    done = run("-d", "out", "--signal", "USR2", program, cwd=tmp_path)
    assert done.stdout == "own\nTrue\n"
    assert [incident(b)["cause"] for b in bundles(tmp_path / "out")] == ["signal"]


def test_an_unhandled_signal_still_kills(tmp_path: Path) -> None:
    assert run("-d", "out", FILL, "stop", "signal", cwd=tmp_path).returncode == -signal.SIGUSR2


def test_lines_and_the_summary_reads_them(tmp_path: Path) -> None:
    done = run("-d", "out", "--lines", "3", FILL, cwd=tmp_path)
    lines = [line for line in said(done.stderr) if "retries" in line]
    assert lines[1] == (
        "oomctl: step 4: allocated 390.62 KiB, peak 390.62 KiB, reserved 390.62 KiB, idle 0%, retries 0"
    )
    (tmp_path / "log").write_text("\n".join(lines))
    series = {s.name: s.steps for s in oomctl.load(str(tmp_path / "log")).series}
    assert series["allocated"] == (1, 4, 7, 10)


def limited(tmp_path: Path, statement: str) -> Path:
    """The job with a statement before it."""
    program = tmp_path / "limited.py"
    program.write_text(f"{statement}\nimport runpy\nrunpy.run_path({str(FILL)!r}, run_name='__main__')\n")
    return program


@pytest.mark.parametrize("where", ["/proc/nowhere", "taken/by/a/file"])
def test_a_folder_that_cannot_be_written(where: str, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    (tmp_path / "temporary").mkdir()
    done = run("-d", where, FILL, cwd=tmp_path, TMPDIR=str(tmp_path / "temporary"))
    assert done.returncode == 1
    assert others(done.stderr)[-1].startswith("torch.OutOfMemoryError")
    assert any(f"cannot write to {os.path.abspath(tmp_path / where)}" in line for line in said(done.stderr))
    assert len(bundles(tmp_path / "temporary")) == 1


def test_a_full_disk(tmp_path: Path) -> None:
    """No file may pass 300 bytes: not even incident.json finds room, anywhere."""
    program = limited(tmp_path, "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))")
    done = run("-d", "out", program, cwd=tmp_path)
    assert done.returncode == 1
    assert others(done.stderr)[-1].startswith("torch.OutOfMemoryError")
    assert any("could not be written out: file too large; the program goes on" in line for line in said(done.stderr))
    assert bundles(tmp_path / "out") == []


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    """Room for the small files, but not for the snapshot: the rest is kept, and says what is missing."""
    program = limited(
        tmp_path,
        "import torch, resource; torch.memory._snapshot = lambda: 'x' * 100_000\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))",
    )
    done = run("-d", "out", program, cwd=tmp_path)
    assert done.returncode == 1
    (bundle,) = bundles(tmp_path / "out")
    assert {p.name for p in bundle.iterdir()} == FILES - {"snapshot.pickle"}
    assert incident(bundle)["notes"] == ["snapshot.pickle: file too large"]
    assert len(oomctl.load(str(bundle)).oom_events) == 1


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("import torch; torch.memory._snapshot = None", "snapshot.pickle: TypeError"),
        ("import torch; torch.cuda.memory_stats = lambda d: 1 / 0", "memory_stats: ZeroDivisionError"),
        ("import torch; torch.cuda.get_device_properties = lambda d: 1 / 0", "device: ZeroDivisionError"),
        ("import torch; del torch.cuda.get_per_process_memory_fraction", None),
        ("import torch; del torch._C._cuda_memoryStats", None),
    ],
    ids=str,
)
def test_private_api_that_moved(statement: str, expected: str | None, tmp_path: Path) -> None:
    done = run("-d", "out", limited(tmp_path, statement), cwd=tmp_path)
    assert (done.returncode, others(done.stderr)[-1][:23]) == (1, "torch.OutOfMemoryError:")
    (bundle,) = bundles(tmp_path / "out")
    assert "CUDA out of memory" in (bundle / "message.txt").read_text()
    notes = incident(bundle)["notes"]
    assert (notes == []) if expected is None else any(note.startswith(expected) for note in notes)


@pytest.mark.parametrize(
    "statement",
    [
        "import torch; del torch._C._cuda_attach_out_of_memory_observer",
        "import torch; torch._C._cuda_attach_out_of_memory_observer = lambda call: None",
    ],
    ids=["no observer", "silent observer"],
)
def test_without_an_observer_the_exception_is_the_moment(statement: str, tmp_path: Path) -> None:
    run("-d", "out", limited(tmp_path, statement), cwd=tmp_path)
    (bundle,) = bundles(tmp_path / "out")
    facts = incident(bundle)
    assert (facts["cause"], facts["moment"], facts["request"]) == ("exception", "after", None)
    assert len(oomctl.load(str(bundle)).oom_events) == 1


def test_an_allocator_that_keeps_no_history(tmp_path: Path) -> None:
    """As cudaMallocAsync: recording and snapshots are refused, no observer is called."""
    program = limited(
        tmp_path,
        "import torch\n"
        "def refuse(*args, **kwargs): raise RuntimeError('cudaMallocAsync does not yet support recordHistory')\n"
        "torch.memory._record_memory_history = torch.memory._snapshot = refuse\n"
        "torch._C._cuda_attach_out_of_memory_observer = refuse",
    )
    done = run("-d", "out", program, cwd=tmp_path)
    assert (done.returncode, others(done.stderr)[-1][:23]) == (1, "torch.OutOfMemoryError:")
    assert "no history of cuda memory" in done.stderr
    assert "never used" not in done.stderr
    (bundle,) = bundles(tmp_path / "out")
    assert {p.name for p in bundle.iterdir()} == FILES - {"snapshot.pickle"}
    assert len(oomctl.load(str(bundle)).oom_events) == 1


def test_other_exceptions_write_nothing(tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text("import torch\ntorch.empty(10)\nraise RuntimeError('shapes differ')")
    assert run("-d", "out", program, cwd=tmp_path).returncode == 1
    assert bundles(tmp_path / "out") == []


def test_a_history_of_the_programs_own_is_left_alone(tmp_path: Path) -> None:
    program = tmp_path / "p.py"
    program.write_text(
        "import torch\n"
        "torch._init()\n"
        "torch._record_memory_history(max_entries=5)\n"
        "import oomctl\n"
        "with oomctl.record('out'):\n"
        "    torch.empty(10)\n"
        "print(torch.device.history['max_entries'])\n"
    )
    assert python(program, cwd=tmp_path, fake=True).stdout == "5\n"


def test_blocks_and_functions(tmp_path: Path) -> None:
    done = python(HERE / "jobs" / "blocks.py", cwd=tmp_path, fake=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "caught",
        "caught",
        "history None observers 1",
        "['oomctl.step#1', '/oomctl.step#1', 'oomctl.step#2', '/oomctl.step#2']",
    ]
    assert not (tmp_path / "elsewhere").exists()
    found = bundles(tmp_path / "bundles")
    assert [incident(b)["step"] for b in found] == [{"number": 10, "source": "oomctl.step"}] * 2
    assert all((b / "message.txt").exists() for b in found)


def test_bundles_of_one_second_do_not_collide(tmp_path: Path) -> None:
    done = run("-d", "out", "--max-dumps", "20", FILL, "survive", "12", cwd=tmp_path)
    assert done.returncode == 0
    assert len(bundles(tmp_path / "out")) == 12
