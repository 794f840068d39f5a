"""Plain text for people at 80 columns: paragraphs wrapped, lists hung, literal lines left alone."""

from __future__ import annotations

import textwrap
from typing import Final

from oomctl.model.pages import Page

WIDTH: Final = 80


def wrap(text: str, indent: str = "", hang: str | None = None) -> list[str]:
    """Lines of one paragraph; words are never cut.

    Args:
        text: The paragraph, without line breaks that matter.
        indent: Before the first line.
        hang: Before the others; the same by default.
    """
    return textwrap.wrap(
        " ".join(text.split()),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent if hang is None else hang,
        break_long_words=False,
        break_on_hyphens=False,
    )


def printable(text: str) -> str:
    """Text from the user or a file without control characters, so that it cannot steer the terminal."""
    return "".join(char if char.isprintable() else "?" for char in text)


def page_lines(page: Page) -> list[str]:
    """A page as lines of at most 80 columns, except where a literal line is longer."""
    head = f"{page.code}  {page.title}" if page.code else page.title
    lines = wrap(head)
    lines += ["=" * max(map(len, lines)), ""]
    for paragraph in page.text.strip("\n").split("\n\n"):
        block = paragraph.split("\n")
        if all(line.startswith("    ") or not line.strip() for line in block):
            lines += block
        elif any(line.startswith("- ") for line in block):
            lines += _list(block)
        else:
            lines += wrap(paragraph)
        lines.append("")
    if page.see:
        lines += wrap("See also: " + ", ".join(page.see))
    return lines


def _list(block: list[str]) -> list[str]:
    """List items, each of which may go on in the lines after it."""
    items: list[str] = []
    for line in block:
        if line.startswith("- ") or not items:
            items.append(line)
        else:
            items[-1] += " " + line.strip()
    lines: list[str] = []
    for item in items:
        if item.startswith("- "):
            lines += wrap(item[2:], "- ", "  ")
        else:
            lines += wrap(item)
    return lines
