"""The one place that knows where templates and fixtures lie: in the package, or beside it in a checkout."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

if sys.version_info >= (3, 11):
    from importlib.resources.abc import Traversable
else:
    from importlib.abc import Traversable

__all__ = ["Traversable", "fixtures", "skill", "templates"]


def templates() -> Traversable:
    """Folder of the report templates."""
    return _folder("templates")


def fixtures() -> Traversable:
    """Folder of the recorded failures that ship with oomctl."""
    return _folder("fixtures")


def skill() -> str:
    """The guide for agents: a skill file, its front matter included."""
    return (files("oomctl") / "skills" / "oomctl" / "SKILL.md").read_text(encoding="utf-8")


def _folder(name: str) -> Traversable:
    package = files("oomctl")
    installed = package.joinpath(name)
    if installed.is_dir():
        return installed
    return Path(str(package)).parent / name
