"""The text of source lines, where the tree that a run was made from is at hand."""

from __future__ import annotations

import os
import re
from typing import Final

from oomctl.errors import OomctlError
from oomctl.model.stacks import Frame

_LARGEST: Final = 4 << 20
"""Bytes of a source file that is read; no code is longer."""
_LONGEST: Final = 400


class SourceTree:
    """Lines of files below a folder; a recorded path is found by its longest end that exists there.

    Args:
        root: The folder, for example a checkout of the commit that the run was made from.

    Raises:
        OomctlError: There is no such folder.
    """

    def __init__(self, root: str) -> None:
        if not os.path.isdir(root):
            raise OomctlError(f"{root}: no such folder", "give the checkout that the run was made from")
        self.root = os.path.realpath(root)
        self._files: dict[str, list[str] | None] = {}

    def text_of(self, frame: Frame) -> str | None:
        """The line of a frame without its indentation, or None where it is not at hand.

        Args:
            frame: As recorded.
        """
        if frame.filename not in self._files:
            self._files[frame.filename] = self._read(frame.filename)
        lines = self._files[frame.filename]
        if lines is None or not 0 < frame.line <= len(lines):
            return None
        return lines[frame.line - 1].strip()[:_LONGEST]

    def _read(self, path: str) -> list[str] | None:
        parts = [part for part in re.split(r"[/\\]", path) if part not in ("", ".", "..")]
        for start in range(len(parts)):
            try:
                target = os.path.realpath(os.path.join(self.root, *parts[start:]))
                # A recorded path, or a link in the tree, must not lead out of it.
                if os.path.commonpath([self.root, target]) != self.root or not os.path.isfile(target):
                    continue
                if os.path.getsize(target) > _LARGEST:
                    return None
                with open(target, encoding="utf-8", errors="replace") as file:
                    return file.read().split("\n")
            except (OSError, ValueError):
                return None
        return None
