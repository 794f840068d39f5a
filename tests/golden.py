"""Golden files: expected output kept beside the tests, rewritten with OOMCTL_GOLDEN=1."""

from __future__ import annotations

import os
from pathlib import Path


def check(path: Path, text: str) -> None:
    """Compares text with the file, or writes the file when the environment asks for it.

    Args:
        path: The golden file.
        text: What the program printed.
    """
    if os.environ.get("OOMCTL_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path.name}: differs; OOMCTL_GOLDEN=1 rewrites it"
