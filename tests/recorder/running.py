"""Runs programs with and without a recording around them."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FAKE = HERE / "fake"
ROOT = HERE.parents[1]

LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


def environment(fake: bool, **more: str) -> dict[str, str]:
    """Variables for a child: this package is found, and the stand-in for torch where it is wanted."""
    clean = {k: v for k, v in os.environ.items() if k not in LAUNCHER and not k.startswith(("OOMCTL", "PYTEST"))}
    paths = [str(ROOT)] + ([str(FAKE)] if fake else [])
    return clean | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "200"} | more


def python(
    *args: str | Path, cwd: Path, fake: bool = False, stdin: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    """``python ARGS``."""
    return subprocess.run(
        [sys.executable, *map(str, args)],
        cwd=cwd,
        env=environment(fake, **more),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def run(*args: str | Path, cwd: Path, fake: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
    """``oomctl run ARGS``."""
    return python("-m", "oomctl", "run", *args, cwd=cwd, fake=fake, **more)


def said(text: str) -> list[str]:
    """Our own lines of a stderr."""
    return [line for line in text.splitlines() if line.startswith("oomctl")]


def others(text: str) -> list[str]:
    """What the program itself wrote there."""
    return [line for line in text.splitlines() if not line.startswith("oomctl")]


def bundles(folder: Path) -> list[Path]:
    """Bundles in order of their names; nothing half-written may lie beside them."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    assert [p.name for p in found if not p.name.startswith(("oom-", "state-"))] == []
    return found


def incident(bundle: Path) -> dict[str, Any]:
    """incident.json."""
    return json.loads((bundle / "incident.json").read_text(encoding="utf-8"))


def snapshot(bundle: Path) -> dict[str, Any]:
    """The snapshot, which our own stand-in wrote a moment ago."""
    with (bundle / "snapshot.pickle").open("rb") as stream:
        return pickle.Unpickler(stream).load()
