"""`oomctl conf` from end to end: text, JSON, exit codes, the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from oomctl.cli.main import main
from tests import golden

MIXED = "expandable_segments:True,max_split_size_mb:128,garbage_collection_threshold:0.8"
ROUNDUP = "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"
GOLDEN = Path(__file__).parent / "golden"


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("name", "args", "code"),
    [
        ("mixed-2.1", [MIXED, "--torch", "2.1"], 0),
        ("mixed-2.6", [MIXED, "--torch", "2.6"], 0),
        ("mixed-2.13", [MIXED, "--torch", "2.13"], 0),
        ("equals-sign", ["max_split_size_mb=128", "--torch", "2.13"], 1),
        ("divisions-1", ["roundup_power2_divisions:1", "--torch", "2.6"], 0),
        ("roundup-2.9", [ROUNDUP, "--torch", "2.9"], 0),
        ("generic-name-2.9", ["PYTORCH_ALLOC_CONF=expandable_segments:True", "--torch", "2.9"], 1),
        ("unknown", ["max_split:128MB,expandable_segments:true", "--torch", "2.11", "--platform", "wsl"], 1),
    ],
)
def test_output(name: str, args: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    platform = [] if "--platform" in args else ["--platform", "linux"]
    assert main(["conf", *args, *platform]) == code
    text = capsys.readouterr().out
    assert all(len(line) <= 80 or "export " in line for line in text.splitlines())
    golden.check(GOLDEN / f"{name}.txt", text)


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conf", "max_split_size_mb:5", "--torch", "2.11", "--platform", "linux", "--json"]) == 1
    golden.check(GOLDEN / "too-small.json", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("environment", "torch", "code", "expected"),
    [
        ({}, "2.11", 0, "No allocator settings"),
        ({"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "2.11", 0, "From PYTORCH_CUDA_ALLOC_CONF"),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, "2.9", 1, "have no effect"),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, "2.10", 0, "From PYTORCH_ALLOC_CONF"),
        ({"PYTORCH_HIP_ALLOC_CONF": "expandable_segments:True"}, "2.11", 1, "only ROCm builds"),
        (
            {"PYTORCH_CUDA_ALLOC_CONF": "", "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
            "2.11",
            1,
            "is set too and has no effect",
        ),
        ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "0"}, "2.11", 1, "torch caches nothing"),
    ],
)
def test_environment(
    environment: dict[str, str],
    torch: str,
    code: int,
    expected: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["conf", "--torch", torch, "--platform", "linux"]) == code
    assert expected in " ".join(capsys.readouterr().out.split())


def test_hostile_text_is_shown_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conf", "\x1b[31mexpandable_segments:[bold]True\x07", "--torch", "2.11"]) == 1
    assert "\x1b" not in capsys.readouterr().out


def test_json_of_an_empty_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conf", "--torch", "2.9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["names"] == ["PYTORCH_CUDA_ALLOC_CONF"]


@pytest.mark.parametrize("args", [["x", "--torch", "two"], ["x", "--torch", "2.9", "--platform", "amiga"]])
def test_wrong_usage(args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conf", *args]) == 2
    assert capsys.readouterr().err.startswith("error: ")
