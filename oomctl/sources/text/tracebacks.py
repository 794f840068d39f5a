"""Tracebacks: Python's, IPython's, Rich's; innermost frame first, with the source line of each frame."""

from __future__ import annotations

import re
from typing import Final

from oomctl.model.stacks import Frame
from oomctl.sources.text.base import Findings, FoundTraceback, Passage
from oomctl.sources.text.normalise import Line

_PYTHON: Final = re.compile(
    r'File\s+"(?P<path>[^"\n]{1,500}(?:\n[^"\n]{1,300}){0,3})",\s*line\s+(?P<no>\d{1,18})(?:\s*,\s*in\s+(?P<fn>[^\s:]+))?'
)
_IPYTHON: Final = re.compile(
    r"^(?:File )?(?P<path>[^\s:|]\S*?\.pyx?|<ipython-input-[\w-]+>|/tmp/ipykernel_\S+)(?::(?P<no>\d{1,18}),?)?"
    r" in (?P<fn>[\w.<>]+)\s?\(",
    re.M,
)
_CELL: Final = re.compile(
    r"^(?:Input In|Cell In) ?\[(?P<cell>\d{1,18})\](?:, line (?P<no>\d{1,18})|, in (?P<fn>\S+))", re.M
)
_RICH: Final = re.compile(r"\.py:(?P<no>\d{1,18})\s+in\s+(?P<fn>[\w<>.]+)")
"""Behind a path, which is looked for backwards from here: forwards, every letter of a long word could start one."""
_RICH_PATH: Final = re.compile(r"[\s\"'(]")
LONGEST_PATH: Final = 500
"""Characters of a frame's path that are read."""
LONGEST_CLOSING: Final = 300
"""Characters at the start of a line in which an exception's name is looked for."""
_ARROW: Final = re.compile(r"^\s*-{1,5}>\s*(?P<no>\d{1,18})\s?(?P<code>.*)$")
_POINTER: Final = re.compile(r"^\s*[\u2771>]\s*(?P<no>\d{1,18})\s*[\u2502|]?[\u2502| ]*(?P<code>.*)$")
_HEADER: Final = re.compile(r"Traceback \(most recent call last\)")
_CLOSING: Final = re.compile(
    r"^(?P<name>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception|Interrupt|Exit|OutOfMemory)\w*(?:\([A-Za-z]+\))?)(?=[:\s]|$)"
)
_MARKS: Final = re.compile(r"^[\s~^]+$")
GAP: Final = 14
"""Lines between two frames of one traceback (IPython and Rich show several lines of source)."""


class Tracebacks:
    """Reads tracebacks."""

    slug = "tracebacks"

    def read(self, passage: Passage, found: Findings) -> None:
        """Adds one `FoundTraceback` each."""
        for lines in passage.workers:
            for traceback in _in_worker(lines):
                if not passage.stretch.accepts(traceback.last):
                    continue
                if any(t.first == traceback.first and t.last == traceback.last for t in found.tracebacks[-40:]):
                    continue
                if found.room("tracebacks", len(found.tracebacks)):
                    found.tracebacks.append(traceback)


def _in_worker(lines: list[Line]) -> list[FoundTraceback]:
    text = "\n".join(line.text for line in lines)
    if not (".py" in text or 'File "' in text or "ipython" in text or "In [" in text or "In[" in text):
        return []
    starts = []
    position = 0
    for line in lines:
        starts.append(position)
        position += len(line.text) + 1
    hits: list[tuple[int, int, str, int, str]] = []
    for match in _RICH.finditer(text):
        tail = text[max(0, match.start() - LONGEST_PATH) : match.start()]
        path = _RICH_PATH.split(tail)[-1]
        if path:
            start = match.start() - len(path)
            hits.append((start, match.end(), f"{path}.py", int(match["no"]), match["fn"]))
    for pattern in (_PYTHON, _IPYTHON, _CELL):
        for match in pattern.finditer(text):
            groups = match.groupdict()
            path = re.sub(r"\s*\n\s*", "", groups.get("path") or f"<cell {groups.get('cell')}>")
            hits.append((match.start(), match.end(), path, int(groups.get("no") or 0), groups.get("fn") or "<module>"))
    hits.sort()
    out: list[FoundTraceback] = []
    frames: list[Frame] = []
    codes: list[str] = []
    first = last = 0
    headed = False
    index = 0
    previous_end = -1

    def end(closing: str) -> None:
        nonlocal frames, codes
        if frames:
            if headed or not _inverted(frames, codes):
                frames.reverse()
                codes.reverse()
            tag = lines[first].tag
            out.append(FoundTraceback(tuple(frames), tuple(codes), lines[first].no, lines[last].no, tag, closing))
        frames, codes = [], []

    for start, stop, path, number, name in hits:
        if start < previous_end:
            continue
        previous_end = stop
        while index + 1 < len(starts) and starts[index + 1] <= start:
            index += 1
        at = index
        if frames:
            between = [line.text for line in lines[last + 1 : at + 1]]
            closing = next((c[0].strip() for c in (_CLOSING.match(b[:LONGEST_CLOSING]) for b in between) if c), "")
            if closing or at - last > GAP or any(_HEADER.search(b) for b in between):
                end(closing)
        if not frames:
            first = at
            headed = any(_HEADER.search(line.text) for line in lines[max(0, at - 3) : at + 1])
        stop_line = at
        while stop_line + 1 < len(starts) and starts[stop_line + 1] <= stop:
            stop_line += 1
        code, shown, used = _code(lines, stop_line, number)
        frames.append(Frame(path, shown, name))
        codes.append(code)
        last = max(stop_line, used)
    if frames:
        closing = ""
        for line in lines[last + 1 : last + 8]:
            if _CLOSING.match(line.text[:LONGEST_CLOSING]):
                closing = line.text.strip()[:300]
                break
        end(closing)
    return out


def _inverted(frames: list[Frame], codes: list[str]) -> bool:
    """Whether the innermost frame comes first, as debuggers print it: by the module's end, or by who calls whom."""
    first, last = frames[0].name, frames[-1].name
    if "<module>" in (first, last):
        return first != "<module>"
    calls = [f"{frame.name}(" for frame in frames]
    down = sum(call in code for code, call in zip(codes, calls[1:], strict=False))
    up = sum(call in code for code, call in zip(codes[1:], calls, strict=False))
    return up > down


def _code(lines: list[Line], at: int, number: int) -> tuple[str, int, int]:
    """The source line that belongs to a frame, its number, and the index of the line that shows it."""
    for step in range(1, 8):
        if at + step >= len(lines):
            break
        text = lines[at + step].text
        if _PYTHON.search(text) or _HEADER.search(text) or _CLOSING.match(text[:LONGEST_CLOSING]):
            break
        arrow = _ARROW.match(text) or _POINTER.match(text)
        if arrow:
            return arrow["code"].strip(), number or int(arrow["no"]), at + step
        if (
            step == 1
            and text.strip()
            and not _MARKS.match(text)
            and text.startswith("  ")
            and not re.match(r"\s*\d+ ", text)
        ):
            return text.strip()[:300], number, at + step
    return "", number, at
