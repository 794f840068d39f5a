"""The picture of a terminal that README shows: ``python -m tests.picture`` draws it anew."""

from __future__ import annotations

import io
from html import escape
from pathlib import Path

from oomctl import _resources, api

TARGET = Path(__file__).resolve().parents[1] / "fixtures" / "pictures" / "terminal.svg"
COMMAND = "oomctl demo kv-cat"
COLUMNS, LINES = 100, 32
"""Of the terminal that is drawn."""

CELL, LINE, MARGIN = 7.2, 16, 14
"""Width of a character, height of a line, and the space around, in pixels."""

COLOURS = {
    1: "#ff7b72",
    2: "#7ee787",
    3: "#e3b341",
    4: "#79c0ff",
    5: "#d2a8ff",
    6: "#56d4dd",
    8: "#8b949e",
}
"""ANSI colours by number: red, green, yellow, blue, magenta, cyan, grey; the bright ones look the same."""


def report() -> str:
    """The report as a colour terminal gets it."""
    folder = Path(str(_resources.fixtures().joinpath("captures", "kv-cat")))
    found = api.diagnose([str(folder / "snapshot.pickle.gz"), str(folder / "stderr.log")])
    return api.render(found, "terminal", width=COLUMNS, color=True)


def draw(ansi: str) -> str:
    """The first lines of a terminal's output as SVG."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=io.StringIO(), color_system="standard", width=COLUMNS)
    lines = [Text(f"$ {COMMAND}", style="bold"), *(Text.from_ansi(line) for line in ansi.splitlines())][:LINES]
    rows = []
    for number, line in enumerate(lines):
        column = 0
        for segment in line.render(console):
            width = len(segment.text)
            if segment.text.strip():
                rows.append(_span(segment.text, segment.style, column, number))
            column += width
    wide, high = COLUMNS * CELL + 2 * MARGIN, LINES * LINE + 2 * MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" role="img" '
        f'aria-label="What {COMMAND} prints in a terminal">\n'
        f'<rect width="100%" height="100%" rx="8" fill="#0d1117"/>\n'
        f'<g font-family="ui-monospace,Menlo,Consolas,DejaVu Sans Mono,monospace" font-size="12" fill="#e6edf3" '
        ">\n" + "\n".join(rows) + "\n</g>\n</svg>\n"
    )


def _span(text: str, style: object, column: int, row: int) -> str:
    """One run of text; its length is set, so that columns line up in any font."""
    lead = len(text) - len(text.lstrip())
    shown = text.strip().replace("  ", "\u00a0\u00a0")  # runs of spaces would collapse
    x, y = MARGIN + (column + lead) * CELL, MARGIN + row * LINE + 12
    number = getattr(getattr(style, "color", None), "number", None)
    colour = COLOURS.get(number) or COLOURS.get((number or 0) - 8)
    paint = f' fill="{colour}"' if colour else ""
    weight = ' font-weight="bold"' if getattr(style, "bold", None) else ""
    length = f' textLength="{len(shown) * CELL:g}"'
    return f'<text x="{x:g}" y="{y:g}"{length}{paint}{weight}>{escape(shown)}</text>'


def update() -> None:
    """Writes the picture."""
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(draw(report()), encoding="utf-8")


if __name__ == "__main__":
    update()
