"""The text of a line that a stack frame names, where its file is at hand.

A snapshot names any file it likes, and what is read here lands in reports that people pass on. So only Python files
below the working directory, or below the folders that the user called their own, are ever opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

LARGEST: Final = 4 << 20
"""Bytes of a source file that is still read."""


def code_line(file: str, line: int, roots: Sequence[str] = ()) -> str | None:
    """The stripped line, at most 200 characters; None where the file is not at hand or not below a root.

    Args:
        file: Path as recorded.
        line: 1-based.
        roots: Folders of the user's own code, besides the working directory.
    """
    if line < 1 or not file.endswith(".py"):
        return None
    try:
        path = Path(file).resolve(strict=True)
        allowed = [Path.cwd().resolve(), *(Path(root).resolve() for root in roots)]
        if not any(path.is_relative_to(root) for root in allowed):
            return None
        if not path.is_file() or path.stat().st_size > LARGEST:
            return None
        with path.open(encoding="utf-8", errors="replace") as text:
            for number, content in enumerate(text, 1):
                if number == line:
                    return content.strip()[:200] or None
    except (OSError, ValueError, RuntimeError):
        return None
    return None
