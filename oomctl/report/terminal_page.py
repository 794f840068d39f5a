"""Lines for a terminal: wrapping, tables whose numbers are never cut, bars, and their ASCII forms."""

# ruff: noqa: RUF001 (the glyphs are meant)
from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO
from itertools import pairwise
from typing import Final

from rich.console import Console
from rich.text import Text

from oomctl.report.texts import cut_left, cut_right, width

UNICODE_GLYPHS: Final = {
    "others": "╱", "context": "╲", "live": "█", "rounding": "▓", "pending": "▒", "idle_split": "░",
    "idle_other_streams": "┼", "idle_private_pools": "◇", "idle_whole_segments": "▫", "free": "·", "unexplained": "?",
}  # fmt: skip
ASCII_GLYPHS: Final = {
    "others": "/", "context": "\\", "live": "#", "rounding": "=", "pending": "~", "idle_split": "-",
    "idle_other_streams": "+", "idle_private_pools": "o", "idle_whole_segments": "_", "free": ".", "unexplained": "?",
}  # fmt: skip
COLOURS: Final = {
    "others": "bright_black", "context": "bright_black", "live": "blue", "rounding": "cyan", "pending": "magenta",
    "idle_split": "yellow", "idle_other_streams": "yellow", "idle_private_pools": "yellow",
    "idle_whole_segments": "yellow", "free": "green", "unexplained": "red",
}  # fmt: skip
_ASCII: Final = str.maketrans({
    "–": "-", "−": "-", "…": "...", "→": "->", "←": "<-", "·": "|", "■": "#", "◆": "*", "▲": "^", "✕": "x", "“": '"',
    "”": '"', "’": "'", "×": "x", "≤": "<=", "≥": ">=",
})  # fmt: skip
_UNIT: Final = re.compile(r" [KMGTPE]?i?B\b")
_READABLE: Final = 12
_READABLE_WHOLE: Final = 24
"""Columns below which a place or name that was cut tells nothing; on a narrow page there is a line for the whole."""
NARROW: Final = 60
"""Columns below which tables have no bars, and rows become several lines."""
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_SPARKS: Final = "▁▂▃▄▅▆▇█"
_ASCII_SPARKS: Final = "_.-=+*%#"


class Page:
    """Collects lines of at most `columns` columns and prints them as one text.

    Args:
        columns: Width to keep to.
        unicode: False writes ASCII only.
    """

    def __init__(self, columns: int, unicode: bool) -> None:
        self.columns = max(columns, 40)
        self.unicode = unicode
        self.glyphs = UNICODE_GLYPHS if unicode else ASCII_GLYPHS
        self.mark = "…" if unicode else "..."
        self.lines: list[Text] = []

    def say(self, text: str) -> str:
        """A text as this page may write it."""
        return text if self.unicode else text.translate(_ASCII).encode("ascii", "backslashreplace").decode()

    def add(self, *parts: str | tuple[str, str]) -> None:
        """One line of (text, style) parts, as long as they are."""
        line = Text()
        for part in parts:
            text, style = (part, "") if isinstance(part, str) else part
            line.append(self.say(text), style)
        line.rstrip()
        self.lines.append(line)

    def blank(self) -> None:
        """An empty line, never two."""
        if self.lines and self.lines[-1].plain:
            self.lines.append(Text())

    def heading(self, title: str, remark: str = "") -> None:
        """A heading after an empty line, with a remark in grey where there is room."""
        self.blank()
        if width(self.say(title)) + width(self.say(remark)) + 2 <= self.columns:
            self.add((title, "bold"), ("  " + remark if remark else "", "bright_black"))
            return
        self.wrap((title, "bold"))
        self.wrap((remark, "bright_black"), first=2)

    def wrap(self, *parts: str | tuple[str, str], first: int = 0, rest: int | None = None) -> None:
        """A paragraph, wrapped at spaces; words longer than a line are broken, nothing is lost.

        Args:
            parts: Texts or (text, style).
            first: Columns that the first line is indented by.
            rest: Columns for the following lines, by default the same.
        """
        text = Text()
        for part in parts:
            piece, style = (part, "") if isinstance(part, str) else part
            text.append(self.say(piece), style)
        rest = first if rest is None else min(rest, self.columns // 3)
        # The first line is narrower or wider than the others: pad it, wrap, and indent what follows.
        words = _measure(text.plain, self.columns - first, self.columns - rest)
        for number, line in enumerate(text.divide(words)):
            line.rstrip()
            indented = Text(" " * (rest if number else first))
            indented.append_text(_lstrip(line) if number else line)
            self.lines.append(indented)

    def table(
        self,
        rows: Sequence[Sequence[tuple[str, str]]],
        right: Sequence[int],
        cut: int,
        indent: int = 2,
        widths: Sequence[int] = (),
    ) -> None:
        """Rows of (text, style) cells in columns; only the cells of one column are ever cut, from the left.

        Where that column would be left with too little to be read, each row becomes several lines, broken between
        cells.

        Args:
            rows: Cells.
            right: Indices of the columns that are aligned to the right.
            cut: Index of the column that gives way.
            indent: Columns before the table.
            widths: Least widths, for columns that must line up with another table.
        """
        if not rows:
            return
        cells = [[(self.say(text), style) for text, style in row] for row in rows]
        columns = [max(width(row[i][0]) for row in cells) for i in range(len(cells[0]))]
        columns = [max(have, least) for have, least in zip(columns, [*widths, *[0] * len(columns)], strict=False)]
        room = self.columns - indent - sum(columns) - 2 * (len(columns) - 1) + columns[cut]
        lines = [range(len(columns))]
        if room < min(columns[cut], _READABLE if self.columns >= NARROW else _READABLE_WHOLE):
            before = sum(columns[:cut]) + 2 * cut  # a mark before a name stays on its line
            columns[cut] = min(columns[cut], self.columns - indent - (before if 0 < before < 6 else 2))
            lines = self._broken(columns, indent, cut)
        columns[cut] = min(columns[cut], max(room, 8)) if len(lines) == 1 else columns[cut]
        for row in cells:
            for number, places in enumerate(lines):
                line = Text(" " * (indent + 2 * bool(number)))
                for i in places:
                    text, style = row[i]
                    shown = cut_left(text, columns[i], self.mark) if i == cut else text
                    pad = " " * (columns[i] - width(shown))
                    line.append(pad + shown if i in right else shown, style)
                    line.append(("" if i in right else pad) + "  ")
                line.rstrip()
                if line.plain or not number:
                    self.lines.append(line)

    def _broken(self, columns: Sequence[int], indent: int, cut: int) -> list[range]:
        """Which columns of a table stand on each of the lines of a row."""
        lines: list[range] = []
        start, used = 0, indent
        for i, size in enumerate(columns):
            if i > start and (used + size > self.columns or i == cut + 1):
                lines.append(range(start, i))
                start, used = i, indent + 2
            used += size + 2
        return [*lines, range(start, len(columns))]

    def bar(self, share: float, columns: int) -> str:
        """A bar of a ratio; what is not nothing shows."""
        if not self.unicode:
            return "#" * max(round(share * columns), 1 if share > 0 else 0)
        eighths = max(round(share * columns * 8), 1 if share > 0 else 0)
        whole, part = divmod(eighths, 8)
        return "█" * whole + (_EIGHTHS[part] if part else "")

    def stacked(self, keys: Sequence[str], shares: Sequence[float], columns: int) -> list[tuple[str, str]]:
        """One bar of several parts, each in its glyph and colour; the parts fill the columns."""
        cells = spread(shares, columns)
        return [(self.glyphs[key] * n, COLOURS[key]) for key, n in zip(keys, cells, strict=True) if n]

    def spark(self, values: Sequence[float], columns: int) -> str:
        """A line of values up to 1, the highest of each column; what is below 0 is drawn as 0."""
        sparks = _SPARKS if self.unicode else _ASCII_SPARKS
        columns = min(columns, len(values))
        edges = [i * len(values) // columns for i in range(columns + 1)]
        tops = (max(values[a:b]) for a, b in pairwise(edges))
        return "".join(sparks[min(max(int(top * 8), 0), 7)] for top in tops)

    def fit(self, where: str, function: str, columns: int) -> str:
        """ "file:line function" in so many columns: the path gives way first, from the left."""
        where, function = self.say(where), self.say(function)
        function = cut_right(function, max(columns // 2, 12), self.mark)
        text = f"{where} {function}".strip()
        return cut_left(text, columns, self.mark)

    def text(self, color: bool) -> str:
        """The page as text, with colours or plain."""
        out = StringIO()
        console = Console(
            file=out,
            width=100_000,
            force_terminal=color,
            no_color=not color,
            color_system="standard" if color else None,
            markup=False,
            emoji=False,
            highlight=False,
            legacy_windows=False,
            _environ={},
        )
        for line in self.lines:
            console.print(line, soft_wrap=True)
        return out.getvalue()


def spread(shares: Sequence[float], columns: int) -> list[int]:
    """Whole columns for shares of a bar: they sum to the columns, and no share above 0 vanishes."""
    total = sum(shares)
    if total <= 0 or not columns:
        return [0] * len(shares)
    exact = [share / total * columns for share in shares]
    cells = [max(int(e), 1 if e > 0 else 0) for e in exact]
    by_rest = sorted(range(len(cells)), key=lambda i: exact[i] - cells[i], reverse=True)
    for i in by_rest:
        if sum(cells) < columns and exact[i] > cells[i]:
            cells[i] += 1
    while sum(cells) > columns and max(cells) > 1:
        cells[cells.index(max(cells))] -= 1
    return cells


def _measure(text: str, first: int, rest: int) -> list[int]:
    """Offsets at which a text is divided so that the lines fit."""
    offsets: list[int] = []
    start, room = 0, first
    while True:
        # Character by character: some sequences are narrower or wider than their characters one by one.
        end, used = start, 0
        while end < len(text) and used + width(text[end]) <= room:
            used += width(text[end])
            end += 1
        if end == len(text):
            return offsets
        space = text.rfind(" ", start + 1, end + 1)
        if space > 0 and text[space - 1].isdigit() and _UNIT.match(text, space):  # a number stays with its unit
            before = text.rfind(" ", start + 1, space)
            space = before if text[start : max(before, start)].strip() else space
        end = space + 1 if space > start and text[start:space].strip() else max(end, start + 1)
        offsets.append(end)
        start, room = end, rest


def _lstrip(line: Text) -> Text:
    spaces = len(line.plain) - len(line.plain.lstrip(" "))
    return line[spaces:] if spaces and spaces < len(line.plain) else line
