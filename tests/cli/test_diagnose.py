"""`diagnose`, `summary` and `demo` from end to end over recorded failures."""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from oomctl import _resources, api
from oomctl.cli.main import main

CAPTURES = Path(str(_resources.fixtures().joinpath("captures")))
CAPTURE_NAMES = sorted(path.name for path in CAPTURES.iterdir())
SCHEMA = api.report_schema()
Captured = pytest.CaptureFixture[str]


def paths(name: str) -> list[str]:
    return [str(p) for f in ("snapshot.pickle.gz", "stderr.log") if (p := CAPTURES / name / f).exists()]


def printed_json(args: list[str], capfd: Captured, code: int = 0) -> dict:
    """The one JSON object on stdout, held against the schema."""
    assert main(args) == code
    out, err = capfd.readouterr()
    assert err == ""
    data = json.loads(out)
    jsonschema.validate(data, SCHEMA)
    return data


def test_two_snapshots_are_told_apart_by_their_files(tmp_path, capsys):
    for name, case in (("before.pickle.gz", "healthy-steady"), ("after.pickle.gz", "kv-cat")):
        (tmp_path / name).write_bytes((CAPTURES / case / "snapshot.pickle.gz").read_bytes())
    paths = [str(tmp_path / name) for name in ("before.pickle.gz", "after.pickle.gz")]
    assert main(["diagnose", *paths]) == 0
    out = capsys.readouterr().out
    assert "fragmentation" in out.splitlines()[0]
    assert "after.pickle.gz" in out.splitlines()[1]
    assert "GPU 0, before.pickle.gz: no_oom: " in out
    report = api.diagnose(paths)
    names = [[Path(given.path).name for given in one.inputs] for one in (report, *report.others)]
    assert names == [["after.pickle.gz"], ["before.pickle.gz"]]


@pytest.mark.parametrize("name", CAPTURE_NAMES)
def test_demo_is_diagnose_on_the_recorded_files(name: str, capfd: Captured) -> None:
    assert printed_json(["demo", name, "--json"], capfd) == printed_json(["diagnose", "--json", *paths(name)], capfd)


def test_demo_lists_every_case(capfd: Captured) -> None:
    assert main(["demo"]) == 0
    listed = capfd.readouterr().out
    assert all(name in listed for name in CAPTURE_NAMES)


def test_the_same_input_gives_the_same_bytes(capfd: Captured) -> None:
    outputs = []
    for _ in range(2):
        assert main(["diagnose", "--json", *paths("first-step")]) == 0
        outputs.append(capfd.readouterr().out)
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("suffix", [".html", ".json", ".md", ".txt"])
def test_written_files(suffix: str, tmp_path: Path, capfd: Captured) -> None:
    target = tmp_path / f"report{suffix}"
    assert main(["diagnose", *paths("kv-cat"), "-o", str(target)]) == 0
    out, err = capfd.readouterr()
    assert "fragmentation" in out.splitlines()[0]
    assert err.startswith(f"wrote {target} (")
    assert "fragmentation" in target.read_text(encoding="utf-8").lower()
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize("suffix", [".html", ".json"])
def test_a_report_is_read_back(suffix: str, tmp_path: Path, capfd: Captured) -> None:
    target = tmp_path / f"report{suffix}"
    redact = ["--redact=none"]
    assert main(["diagnose", *paths("losses-kept"), "-o", str(target), "--json", *redact]) == 0
    first = json.loads(capfd.readouterr().out)
    again = printed_json(["diagnose", str(target), "--json", *redact], capfd)
    pictures = {"timeline", "segment_map", "steps", "whatif"} if suffix == ".html" else set()  # thinned in the page
    assert {key for key in first if again.get(key) != first[key]} <= pictures


@pytest.mark.parametrize("traces", [None, [], [[], []]])
def test_an_empty_snapshot(traces: list | None, tmp_path: Path, capfd: Captured) -> None:
    """What a process without CUDA dumps, or one that turned the history off first and held nothing."""
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps([] if traces is None else {"segments": [], "device_traces": traces}))
    assert main(["diagnose", str(path)]) == 2
    assert capfd.readouterr().err.startswith("error: an empty memory snapshot")
    beside = printed_json(["diagnose", "--json", str(path), paths("kv-cat")[1]], capfd)
    assert beside["verdict"]["class"] == "fragmentation"
    assert "the snapshot" in [limit["what"] for limit in beside["limits"]]


@pytest.mark.parametrize(
    "command", [["diff", *paths("kv-cat")[:1] * 2], ["whatif", *paths("kv-cat")[:1]], ["conf", ""]]
)
def test_other_outputs_are_no_input(command: list[str], tmp_path: Path, capfd: Captured) -> None:
    assert main([*command, "--json"]) == 0
    (tmp_path / "printed.json").write_text(capfd.readouterr().out)
    assert main(["diagnose", str(tmp_path / "printed.json")]) == 2
    assert f"what oomctl {command[0]} printed" in capfd.readouterr().err


def test_a_report_is_no_evidence(tmp_path: Path, capfd: Captured) -> None:
    target = tmp_path / "report.json"
    assert main(["diagnose", *paths("load-weights"), "-o", str(target)]) == 0
    capfd.readouterr()
    assert main(["diagnose", str(target), *paths("load-weights")]) == 2
    assert "read back alone" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("name", "classes", "code"),
    [
        ("losses-kept", ["any"], 1),
        ("losses-kept", ["fragmentation,leak"], 1),
        ("losses-kept", ["capacity", "LEAK"], 1),
        ("losses-kept", ["fragmentation"], 0),
        ("kv-cat", ["fragmentation"], 1),
        ("healthy-steady", ["any"], 0),
        ("healthy-steady", ["no-oom"], 1),
    ],
)
def test_fail_on(name: str, classes: list[str], code: int, capfd: Captured) -> None:
    options = [word for cls in classes for word in ("--fail-on", cls)]
    assert printed_json(["diagnose", "--json", *options, *paths(name)], capfd, code)["verdict"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "7"], "nothing about GPU 7"),
        (["--rank", "3"], "nothing about rank 3"),
        (["--torch", "new"], "no version of torch: 'new'"),
        (["--max-size", "1KiB"], "limit"),
        (["-o", "/nowhere/at/all.json"], "cannot write /nowhere/at/all.json"),
        (["-o", "/proc/oomctl.html"], "cannot write /proc/oomctl.html"),
    ],
)
def test_refused_options(options: list[str], message: str, capfd: Captured) -> None:
    assert main(["diagnose", *options, *paths("load-weights")]) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert message in err.splitlines()[0]


def test_a_disk_that_fills_up_costs_the_file_and_not_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Captured
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("oomctl.cli.output.os.fsync", full)
    assert main(["diagnose", *paths("load-weights"), "-o", str(tmp_path / "r.html")]) == 2
    out, err = capfd.readouterr()
    assert "capacity" in out
    assert err.startswith(f"error: cannot write {tmp_path / 'r.html'}: No space left on device\n")
    assert not list(tmp_path.iterdir())


def test_accepted_options(capfd: Captured) -> None:
    options = ["--device", "0", "--torch", "2.11.0+cu130", "--no-whatif", "--user-root", "/workspace", "-v"]
    assert printed_json(["diagnose", "--json", *options, *paths("load-weights")], capfd)["device"]["index"] == 0


@pytest.mark.parametrize("redact", [["--redact=all"], ["--redact", "all"]])
def test_redaction(redact: list[str], capfd: Captured) -> None:
    assert "serve_kv" not in json.dumps(printed_json(["diagnose", "--json", *redact, *paths("kv-cat")], capfd))
    assert "serve_kv" in json.dumps(printed_json(["diagnose", "--json", "--redact", *paths("kv-cat")], capfd))


def test_stdin(monkeypatch: pytest.MonkeyPatch, capfd: Captured) -> None:
    snapshot, log = paths("neighbour")
    on_disk = printed_json(["diagnose", "--json", snapshot, log], capfd)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(log).read_bytes())))
    piped = printed_json(["diagnose", "--json", snapshot, "-"], capfd)
    assert piped["verdict"] == on_disk["verdict"]
    assert piped["inputs"][1]["path"] == "-"


def test_summary_reads_what_is_piped_in(monkeypatch: pytest.MonkeyPatch, capfd: Captured) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(paths("neighbour")[1]).read_bytes())))
    assert printed_json(["summary", "--json"], capfd)["verdict"]["class"] == "external"


def oomctl(*args: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "oomctl", *args], capture_output=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


def test_an_ascii_terminal_gets_ascii() -> None:
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    env.pop("PYTHONIOENCODING", None)
    done = oomctl("demo", "kv-cat", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()
    assert b"?" * 3 not in done.stdout


@pytest.mark.parametrize(("env", "coloured"), [({}, False), ({"FORCE_COLOR": "1"}, True), ({"NO_COLOR": "1"}, False)])
def test_colour_is_for_people_who_watch(env: dict[str, str], coloured: bool) -> None:
    clean = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "FORCE_COLOR"}}
    done = oomctl("demo", "first-step", env={**clean, **env})
    assert (b"\x1b[" in done.stdout) == coloured
    assert b"\x1b[" not in oomctl("demo", "first-step", "--format", "text", env={**clean, **env}).stdout


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c() -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "oomctl", "summary"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    child.stdin.write(b"x" * (1 << 20))  # larger than a pipe holds: it returns when the child reads
    child.stdin.flush()
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate()
    assert (child.returncode, out, err) == (130, b"", b"interrupted\n")


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_while_a_class_is_made() -> None:
    """CPython remembers an interrupt inside exec() and would die of the signal although it was handled."""
    program = """
import sys
from oomctl.cli import exits, main
def interrupted(argv=None):
    try:
        exec("import os, signal; os.kill(os.getpid(), signal.SIGINT)\\nfor _ in range(10**9): pass")
    except KeyboardInterrupt:
        return exits.INTERRUPTED
main.main = interrupted
main.run()
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 130


@pytest.mark.skipif(os.name == "nt", reason="pseudo-terminals")
def test_summary_asks_for_a_paste_on_a_terminal() -> None:
    import pty

    keyboard, terminal = pty.openpty()
    os.write(keyboard, b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n\x04")
    try:
        done = oomctl("summary", "--json", stdin=terminal, timeout=60)
    finally:
        os.close(terminal)
        os.close(keyboard)
    assert done.returncode == 0
    assert b"Ctrl-D" in done.stderr
    assert json.loads(done.stdout)["oom_events"][0]["tried_to_allocate"] == 2 << 30
