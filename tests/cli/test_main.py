"""Exit codes and what stderr says: one line and a hint, never a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oomctl import api
from oomctl.cli.main import main
from oomctl.errors import OomctlError


@pytest.mark.parametrize(
    ("args", "message", "hint"),
    [
        (["diagnose"], "Missing argument", "oomctl diagnose --help"),
        (["diagnose", "x", "--bad"], "No such option: --bad", "oomctl diagnose --help"),
        (["diagnose", "x", "--device", "-1"], "--device", "oomctl diagnose --help"),
        (["diagnose", "x", "--device", "one"], "--device", "oomctl diagnose --help"),
        (["diagnose", "x", "--format", "pdf"], "no format 'pdf'", "terminal"),
        (["diagnose", "x", "--format", "html", "--json"], "contradict", "leave one"),
        (["diagnose", "x", "-o", "report.pdf"], "cannot tell the format of 'report.pdf'", ".html"),
        (["diagnose", "x", "--fail-on", "fire"], "no class 'fire'", "fragmentation"),
        (["diagnose", "x", "--redact=some"], "no way 'some'", "paths"),
        (["demo", "nothing"], "no recorded failure 'nothing'", "kv-cat"),
        (["diagnose", "x", "--max-size", "big"], "not a size: 'big'", "20GiB"),
        (["diagnoze", "x"], "No such command 'diagnoze'", "oomctl --help"),
        (["/"], "no command came before it", "oomctl diagnose /"),
        (["--frobnicate"], "No such option: --frobnicate", "oomctl --help"),
    ],
    ids=str,
)
def test_wrong_usage(args: list[str], message: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("error: ")
    assert message in first
    assert second.startswith("hint: ")
    assert hint in second


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (
            OomctlError("the file\x1b[31m is\nbroken", "try another"),
            2,
            "error: the file [31m is broken\nhint: try another\n",
        ),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (MemoryError(), 2, "not enough memory"),
        (ZeroDivisionError("oops\nagain"), 3, "error: this is a bug in oomctl"),
        (RecursionError("too deep"), 3, "error: this is a bug in oomctl"),
        (BrokenPipeError(), 0, ""),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_goes_wrong_inside(
    raised: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(api, "load", fail)
    monkeypatch.setattr("oomctl.cli.main.silence", lambda stream: None)
    monkeypatch.delenv("OOMCTL_DEBUG", raising=False)
    assert main(["diagnose", "x"]) == code
    out, err = capfd.readouterr()
    assert out == ""
    assert said in err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 2


def test_the_traceback_of_a_bug_is_there_for_whom_asks(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api, "load", lambda *_, **__: 1 // 0)
    monkeypatch.setenv("OOMCTL_DEBUG", "1")
    assert main(["diagnose", "x"]) == 3
    assert "Traceback (most recent call last)" in capfd.readouterr().err


def test_a_bare_call_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "diagnose" in capsys.readouterr().out


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    from oomctl.cli.registry import COMMANDS

    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    for command in COMMANDS:
        if command.exists():
            assert f"\n  {command.name} " in listed
            assert main([command.name, "--help"]) == 0
            assert f"oomctl {command.name}" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {
        **os.environ,
        "_OOMCTL_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "oomctl d",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "oomctl d",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run([sys.executable, "-m", "oomctl"], capture_output=True, text=True, env=env, check=False)
    assert "diagnose" in done.stdout
    assert "demo" in done.stdout
    assert "schema" not in done.stdout


def test_completion_of_options() -> None:
    env = {**os.environ, "_OOMCTL_COMPLETE": "complete_bash", "COMP_WORDS": "oomctl diagnose --js", "COMP_CWORD": "2"}
    done = subprocess.run([sys.executable, "-m", "oomctl"], capture_output=True, text=True, env=env, check=False)
    assert done.stdout.split() == ["--json"]


@pytest.mark.parametrize("command", ["schema", "--help", "diagnose --help", "demo", "--version"])
def test_a_closed_pipe_is_quiet(command: str) -> None:
    script = f"{sys.executable} -m oomctl {command} | head -c 0; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.returncode == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_full_disk_behind_stdout() -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-m", "oomctl", "schema"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr == "error: cannot write to stdout: No space left on device\n"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams(closed: str) -> None:
    done = subprocess.run(["bash", "-c", f"{sys.executable} -m oomctl demo {closed}"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("flags", [[], ["--json"], ["-v"], ["--verbose", "--json"]], ids=" ".join)
@pytest.mark.parametrize("command", ["diagnose", "summary"])
def test_the_short_way_asks_for_the_same_as_the_parser(command, flags, monkeypatch):
    asked = []
    for module in ("oomctl.cli.report", f"oomctl.cli.{command}"):
        monkeypatch.setattr(f"{module}.report_on", lambda *what: asked.append(what) or 0)
    monkeypatch.setattr("oomctl.cli.main._plain_call", lambda args: None, raising=True)
    assert main([command, "a.pickle", *flags, "b.log"]) == 0
    monkeypatch.undo()
    for module in ("oomctl.cli.report", f"oomctl.cli.{command}"):
        monkeypatch.setattr(f"{module}.report_on", lambda *what: asked.append(what) or 0)
    assert main([command, "a.pickle", *flags, "b.log"]) == 0
    (inputs, wanted), (other_inputs, other_wanted) = asked
    assert list(inputs) == list(other_inputs) == ["a.pickle", "b.log"]
    assert wanted == other_wanted
