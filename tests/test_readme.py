"""README says what is true: outputs, options, commands, exit codes.

``python -m tests.test_readme`` writes the present outputs into it and draws its picture anew.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from oomctl.cli import exits
from oomctl.cli.registry import COMMANDS

from . import picture

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
WIDTH = "100"
CHECKED = re.compile(r"<!-- checked -->\n```(\w+)\n(.*?)```\n", re.DOTALL)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")


def text() -> str:
    return README.read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return [body for found, body in CHECKED.findall(text()) if found == language]


def run(command: str) -> str:
    """What a command of README prints, in the folder of README and without a terminal."""
    env = {**os.environ, "COLUMNS": WIDTH, "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    program, *args = shlex.split(command)
    assert program == "oomctl"
    done = subprocess.run(
        [sys.executable, "-m", "oomctl", *args], cwd=ROOT, env=env, capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def split(body: str) -> tuple[str, str]:
    first, _, rest = body.partition("\n")
    assert first.startswith("$ ")
    return first[2:], rest


@pytest.mark.parametrize("body", blocks("console"), ids=lambda body: split(body)[0])
def test_outputs(body: str) -> None:
    command, shown = split(body)
    printed = run(command)
    if "--help" in command:  # typer lays help out differently from version to version; what it offers is ours
        assert set(OPTION.findall(shown)) == set(OPTION.findall(printed))
    else:
        assert shown == printed


@pytest.mark.parametrize("body", blocks("python"))
def test_python_examples_run(body: str) -> None:
    done = subprocess.run([sys.executable, "-c", body], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_every_command_is_listed() -> None:
    rows = dict(re.findall(r"^\| `oomctl (\w+)[^`]*` \| (.*?) \|$", text(), re.MULTILINE))
    assert rows == {command.name: command.help for command in COMMANDS if command.exists()}


def test_every_exit_code_is_listed() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", text(), re.MULTILINE)}
    assert codes == {value for name, value in vars(exits).items() if name.isupper()}


def test_every_option_that_is_named_exists() -> None:
    help_pages = "".join(run(f"oomctl {command.name} --help") for command in COMMANDS if command.exists())
    offered = set(OPTION.findall(help_pages + run("oomctl --help"))) | {"--help"}
    prose = CHECKED.sub("", text())
    assert set(OPTION.findall(prose)) <= offered


def test_the_first_command_is_the_main_job() -> None:
    first = re.search(r"```sh\n(.*?)\n```", text(), re.DOTALL)
    assert first is not None
    steps = [step.strip() for step in first[1].split("&&")]
    assert steps[:2] == ["python3 -m venv .venv", ".venv/bin/pip install ."]
    assert "fragmentation" in run(steps[2].removeprefix(".venv/bin/"))


def test_the_picture_shows_what_is_printed() -> None:
    assert str(picture.TARGET.relative_to(ROOT)) in text()
    assert picture.TARGET.read_text(encoding="utf-8") == picture.draw(picture.report())


def update() -> None:
    """Writes the present outputs into README."""

    def fresh(match: re.Match[str]) -> str:
        language, body = match.groups()
        if language != "console":
            return match[0]
        command, _ = split(body)
        return f"<!-- checked -->\n```console\n$ {command}\n{run(command)}```\n"

    README.write_text(CHECKED.sub(fresh, text()), encoding="utf-8")
    picture.update()


if __name__ == "__main__":
    update()
