"""Which place in the code of one run is which of another: files, functions, then lines by what they call and hold.

Line numbers move with every edit above them, so a line is recognised by its function, by the order of the lines in it,
by what it calls and by the sizes it allocates; its number decides only what these leave open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Final

from oomctl.analysis.frames import frame_kind, user_frames
from oomctl.model.stacks import Frame

TextOf = Callable[[Frame], "str | None"]
"""The text of a frame's line where the source is at hand."""

_MOST_CELLS: Final = 250_000
"""Pairs of lines of one function that are weighed; beyond, only equal numbers match."""

_MOST_SIZES: Final = 64
_EQUAL_TEXT: Final = 100.0
"""Weight of an equal text: one such line counts for more than any number of edited ones beside it."""
_SAME_TEXT: Final = 0.7
"""Share of a line's text that must agree for an edited line to count as the same."""

Function = tuple[str, str]
"""(file, name)."""


@dataclass
class Line:
    """What is known about one line of a function.

    Attributes:
        frame: The frame.
        calls: Names of the functions seen called from it.
        sizes: Sizes of the blocks that it allocates itself.
        text: Its source, or None.
    """

    frame: Frame
    calls: set[str] = field(default_factory=set)
    sizes: set[int] = field(default_factory=set)
    text: str | None = None


def lines_of(
    stacks: Iterable[Sequence[Frame]],
    sizes: Mapping[int, set[int]],
    user_roots: tuple[str, ...] = (),
    text_of: TextOf | None = None,
) -> dict[Frame, Line]:
    """The lines that a run's stacks pass through.

    Args:
        stacks: Frames, innermost first.
        sizes: Number of a stack -> sizes of blocks that it allocated, bytes.
        user_roots: Path prefixes that are the user's.
        text_of: Source texts, where there are any.
    """
    found: dict[Frame, Line] = {}
    for number, frames in enumerate(stacks):
        chosen = set(user_frames(frames, user_roots))
        innermost = True
        for i, frame in enumerate(frames):
            if frame not in chosen:
                continue
            line = found.get(frame)
            if line is None:
                line = found[frame] = Line(frame, text=text_of(frame) if text_of is not None else None)
            if i and frame_kind(frames[i - 1], user_roots) != "cpp":
                line.calls.add(frames[i - 1].name)
            if innermost:
                innermost = False
                room = _MOST_SIZES - len(line.sizes)
                line.sizes.update(sorted(sizes.get(number, ()))[: max(room, 0)])
    return found


def match_lines(before: Mapping[Frame, Line], after: Mapping[Frame, Line]) -> dict[Frame, Frame]:
    """Which line of BEFORE is which of AFTER; each is used once.

    Args:
        before: From `lines_of`.
        after: From `lines_of`.

    Returns:
        Frame of BEFORE -> frame of AFTER.
    """
    first, second = _by_function(before), _by_function(after)
    matched: dict[Frame, Frame] = {}
    for one, other in _match_functions(first, second).items():
        matched.update(_align(first[one], second[other]))
    return matched


def _by_function(lines: Mapping[Frame, Line]) -> dict[Function, list[Line]]:
    groups: dict[Function, list[Line]] = {}
    for frame in sorted(lines):
        groups.setdefault((frame.filename, frame.name), []).append(lines[frame])
    return groups


def _match_functions(
    before: Mapping[Function, list[Line]], after: Mapping[Function, list[Line]]
) -> dict[Function, Function]:
    """Functions of the same name in the same file; then those that moved to another file, where that is unambiguous."""
    files = match_files({file for file, _ in before}, {file for file, _ in after})
    pairs: dict[Function, Function] = {}
    for file, name in before:
        there = (files.get(file, ""), name)
        if there in after:
            pairs[file, name] = there
    taken = set(pairs.values())
    lost: dict[str, list[Function]] = {}
    fresh: dict[str, list[Function]] = {}
    for function in before:
        if function not in pairs:
            lost.setdefault(function[1], []).append(function)
    for function in after:
        if function not in taken:
            fresh.setdefault(function[1], []).append(function)
    for name, ones in lost.items():
        others = fresh.get(name, [])
        if len(ones) == len(others) == 1 and not name.startswith("<"):
            pairs[ones[0]] = others[0]
    return pairs


def match_files(before: set[str], after: set[str]) -> dict[str, str]:
    """Which file of one run is which of another: the same path, else the longest common end of at least the name."""
    matched = {path: path for path in before & after}
    ends: dict[str, list[str]] = {}
    for path in sorted(after - before):
        ends.setdefault(_parts(path)[-1], []).append(path)
    candidates = [
        (-_common_end(path, other), path, other)
        for path in sorted(before - after)
        for other in ends.get(_parts(path)[-1], ())
    ]
    used: set[str] = set()
    for _, path, other in sorted(candidates):
        if path not in matched and other not in used:
            matched[path] = other
            used.add(other)
    return matched


def _parts(path: str) -> list[str]:
    return re.split(r"[/\\]", path)


def _common_end(one: str, other: str) -> int:
    count = 0
    for a, b in zip(reversed(_parts(one)), reversed(_parts(other)), strict=False):
        if a != b:
            break
        count += 1
    return count


def _align(before: list[Line], after: list[Line]) -> dict[Frame, Frame]:
    """Lines of one function: the order-keeping assignment that agrees most, then single ones that changed place."""
    if len(before) * len(after) > _MOST_CELLS:
        numbers = {line.frame.line: line.frame for line in after}
        return {b.frame: numbers[b.frame.line] for b in before if b.frame.line in numbers}
    same = {line.frame.line for line in before} & {line.frame.line for line in after}
    steady = len(same) / max(min(len(before), len(after)), 1)
    scores = [[_score(b, a, steady) for a in after] for b in before]
    rows, columns = len(before), len(after)
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        below, here, score = best[i + 1], best[i], scores[i]
        for j in range(columns - 1, -1, -1):
            skip = max(below[j], here[j + 1])
            taken = score[j] + below[j + 1] if score[j] > 0 else 0.0
            here[j] = max(skip, taken)
    pairs: dict[Frame, Frame] = {}
    i = j = 0
    left_before, left_after = set(range(rows)), set(range(columns))
    while i < rows and j < columns:
        if scores[i][j] > 0 and best[i][j] == scores[i][j] + best[i + 1][j + 1]:
            pairs[before[i].frame] = after[j].frame
            left_before.discard(i)
            left_after.discard(j)
            i, j = i + 1, j + 1
        elif best[i][j] == best[i + 1][j]:
            i += 1
        else:
            j += 1
    pairs.update(_swapped(before, after, sorted(left_before), sorted(left_after)))
    return pairs


def _swapped(before: list[Line], after: list[Line], left: list[int], right: list[int]) -> dict[Frame, Frame]:
    """Lines that changed places: what they call, or their text, is the same and is found once on either side."""

    def sign(line: Line) -> tuple[object, ...] | None:
        if line.text:
            return ("text", line.text.strip())
        return ("calls", *sorted(line.calls)) if line.calls else None

    ones = [sign(before[i]) for i in left]
    others = [sign(after[j]) for j in right]
    return {
        before[i].frame: after[right[others.index(mark)]].frame
        for i, mark in zip(left, ones, strict=True)
        if mark is not None and ones.count(mark) == others.count(mark) == 1
    }


def _score(before: Line, after: Line, steady: float) -> float:
    """How well two lines agree; 0 where they cannot be the same.

    Args:
        before: A line.
        after: A line of the same function.
        steady: Part of the function's line numbers that both runs have, 0 to 1.
    """
    score = 1.0
    if before.text is not None and after.text is not None:
        one, other = before.text.strip(), after.text.strip()
        alike = 1.0 if one == other else SequenceMatcher(None, one[:400], other[:400]).ratio()
        if alike < _SAME_TEXT:
            return 0.0
        score += _EQUAL_TEXT if one == other else 2.0 * alike
    if before.calls and after.calls:
        alike = _overlap(before.calls, after.calls)
        if not alike and (before.sizes or after.sizes):
            return 0.0  # a caller may call through a wrapper now; what allocates by itself is another operation
        score += 2.0 * alike
    trust = 1.5  # in a number that did not move, where most of the function did not
    if before.sizes and after.sizes:
        alike = _overlap(before.sizes, after.sizes)
        score += alike
        trust = 1.5 if alike else 0.5
    if bool(before.sizes) == bool(after.sizes):
        score += 0.25
    if before.frame.line == after.frame.line:
        score += 0.25 + trust * steady
    return score


def _overlap(one: set[str] | set[int], other: set[str] | set[int]) -> float:
    return len(one & other) / len(one | other)
