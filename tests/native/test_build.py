"""A machine without a compiler still gets a working package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("Cython")

ROOT = Path(__file__).resolve().parents[2]


def test_the_build_goes_on_without_a_compiler(tmp_path):
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    for folder in ("templates", "fixtures"):
        (tmp_path / folder).mkdir()
    shutil.copytree(ROOT / "oomctl", tmp_path / "oomctl", ignore=shutil.ignore_patterns("*.so", "*.cpp", "__pycache__"))
    environment = {**os.environ, "CC": "false", "CXX": "false"}
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("failed") == len(list((tmp_path / "oomctl" / "_native").glob("*.pyx")))
    assert not list(tmp_path.rglob("*.so"))
