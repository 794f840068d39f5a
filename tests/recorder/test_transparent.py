"""A program under `oomctl run` does what it does without: output, traceback, exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.recorder.running import HERE, others, python, run, said

PROGRAMS = HERE / "programs"
WRITTEN = {
    "broken.py": b"def f(:\n    pass\n",
    "latin.py": b'# -*- coding: latin-1 -*-\nprint("caf\xe9" == "caf\\xe9")\n',
}
"""Programs that no editor or linter would leave alone."""

CASES = sorted({p.name for p in PROGRAMS.glob("*.py")} - {"sibling.py"} | set(WRITTEN))


def place(name: str, folder: Path) -> Path:
    if name not in WRITTEN:
        return PROGRAMS / name
    (folder / name).write_bytes(WRITTEN[name])
    return folder / name


@pytest.mark.parametrize("name", CASES)
def test_as_without(name: str, tmp_path: Path) -> None:
    program = place(name, tmp_path)
    args = ("-x", "--help", "--redact", "a b", "")
    alone = python(program, *args, cwd=tmp_path, stdin="typed")
    recorded = run(program, *args, cwd=tmp_path, fake=False, stdin="typed")
    assert recorded.returncode == alone.returncode
    assert recorded.stdout == alone.stdout
    assert others(recorded.stderr) == others(alone.stderr)


@pytest.mark.parametrize("name", ["arguments", "code", "chained"])
def test_modules(name: str, tmp_path: Path) -> None:
    alone = python("-m", name, "-x", cwd=PROGRAMS)
    recorded = run("-d", tmp_path, "-m", name, "-x", cwd=PROGRAMS, fake=False)
    assert recorded.returncode == alone.returncode
    # The interpreter's own frames differ between `python -m` and a call of runpy.
    assert re.sub(r"ModuleSpec\(.*?\)\)?", "", recorded.stdout) == re.sub(r"ModuleSpec\(.*?\)\)?", "", alone.stdout)
    assert others(recorded.stderr)[-1:] == others(alone.stderr)[-1:]


def test_a_folder_with_a_main(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text("import sys; print(sys.argv[1:], __name__)")
    assert run("app", "1", cwd=tmp_path, fake=False).stdout == "['1'] __main__\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["missing.py"], "no such file: missing.py"),
        (["-m", "no_such_module_here"], "no module named no_such_module_here"),
        (["--stacks", "some", "x.py"], "no stacks 'some'"),
        (["--watermark", "much", "x.py"], "no watermark: 'much'"),
        (["--watermark", "120%", "x.py"], "no watermark: '120%'"),
        (["--signal", "KILL", "x.py"], "no signal 'KILL'"),
        (["--entries", "0", "x.py"], "Invalid value"),
        ([], "Missing argument"),
    ],
    ids=str,
)
def test_wrong_usage(args: list[str], message: str, tmp_path: Path) -> None:
    done = run(*args, cwd=tmp_path, fake=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert message in done.stderr
    assert "hint:" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_torch_it_says_so_and_runs(tmp_path: Path) -> None:
    done = run(PROGRAMS / "group.py", cwd=tmp_path, fake=False)
    assert said(done.stderr) == ["oomctl: the program never imported torch: nothing was recorded"]


def test_torch_of_this_machine(tmp_path: Path) -> None:
    """The real torch, built without CUDA: one clear line, and the program runs."""
    program = tmp_path / "tiny.py"
    program.write_text(
        "import torch\n"
        "layer = torch.nn.Linear(2, 1)\n"
        "optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)\n"
        "layer(torch.ones(1, 2)).sum().backward()\n"
        "optimizer.step()\n"
        "print('trained')\n"
    )
    done = run(program, cwd=tmp_path, fake=False)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    (line,) = said(done.stderr)
    assert "records no device memory" in line or "never used a CUDA" in line


def test_a_required_device_that_is_not_there(tmp_path: Path) -> None:
    program = tmp_path / "never.py"
    program.write_text("print('ran')")
    done = run("--require-cuda", program, cwd=tmp_path, fake=False, CUDA_VISIBLE_DEVICES="")
    assert (done.returncode, done.stdout) == (2, "")
    assert "finds no CUDA, HIP or XPU device" in done.stderr


def test_a_required_device_that_is_there(tmp_path: Path) -> None:
    assert run("--require-cuda", PROGRAMS / "code.py", cwd=tmp_path).returncode == 7


def test_recording_itself_imports_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys, oomctl\n"
        "for name in ('record', 'step', 'lightning_callback', 'trainer_callback'):\n"
        "    getattr(oomctl, name)\n"
        "with oomctl.record():\n"
        "    oomctl.step()\n"
        "print(sorted({'torch', 'numpy', 'typer', 'transformers', 'lightning'} & set(sys.modules)))\n"
    )
    assert python("-c", code, cwd=tmp_path).stdout == "[]\n"


def test_launchers_go_outside(tmp_path: Path) -> None:
    (tmp_path / "torchrun").write_text("print('a launcher')")
    done = run("torchrun", cwd=tmp_path, fake=False)
    assert done.stdout == "a launcher\n"
    assert "put oomctl inside: torchrun ... -m oomctl run train.py" in done.stderr
