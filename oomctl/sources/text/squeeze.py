"""Text without white space: a hard wrap, at whatever column and inside whatever word, then makes no difference."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from oomctl.sources.text.normalise import TAG_JOINT, Line

_DROPPED: Final = re.compile(r"[\s\u2500-\u257f\u2580-\u259f\ufffd]+")
_RULES: Final = re.compile(r"[-=]{6,}")


@dataclass(slots=True)
class Squeezed:
    """The lines of one worker, run together without white space and box characters.

    Attributes:
        text: The characters.
        lines: The clean lines that they come from.
        starts: Offset in `text` where each line starts.
        low: `text` in lower case, for quick tests.
    """

    text: str
    lines: list[Line]
    starts: list[int]
    low: str

    def index(self, offset: int) -> int:
        """Index into `lines` of the line that holds this offset."""
        return max(0, bisect_right(self.starts, offset) - 1)

    def line(self, offset: int) -> Line:
        """The line that holds this offset."""
        return self.lines[self.index(offset)]


def squeeze(lines: list[Line]) -> Squeezed:
    """Runs the lines together."""
    parts, starts, size = [], [], 0
    lines = [line for line in lines if line.text.strip()]
    for line in lines:
        text = _RULES.sub("", _DROPPED.sub("", line.text))
        starts.append(size)
        parts.append(text)
        size += len(text)
    text = "".join(parts)
    return Squeezed(text, lines, starts, text.lower())


def by_worker(lines: list[Line]) -> list[list[Line]]:
    """Untangles interleaved workers.

    A line without a prefix that follows a prefixed one belongs to it as well (a terminal wrapped it); it also stays
    with the other lines without a prefix.

    Returns:
        One list of lines a worker, in order of appearance, and last one of the lines without a prefix.
    """
    outer = {line.tag.split(TAG_JOINT, 1)[0] for line in lines if line.text.strip() or line.tag}
    if len(outer) == 1 and any(TAG_JOINT in line.tag for line in lines):
        # One launcher labelled every line: only what is inside tells workers apart.
        for line in lines:
            line.tag = line.tag.split(TAG_JOINT, 1)[1] if TAG_JOINT in line.tag else ""
    tags = {line.tag for line in lines}
    if len(tags) <= 1:
        return [lines] if lines else []
    groups: dict[str, list[Line]] = {}
    loose: list[Line] = []
    current = ""
    for line in lines:
        if line.tag:
            current = line.tag
            groups.setdefault(line.tag, []).append(line)
        else:
            loose.append(line)
            if current:
                groups[current].append(line)
    return [*groups.values(), loose] if loose else list(groups.values())
