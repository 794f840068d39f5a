"""Text for people: numbers as words, places in code, and names from files made harmless."""

# ruff: noqa: RUF001 (dashes are meant)
from __future__ import annotations

import re
import unicodedata
from typing import Final

from oomctl.model.common import shown_name
from oomctl.units import format_size

NAME_LIMIT: Final = 400
"""Characters of a name that are shown; the JSON keeps more."""

_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
_WORD: Final = re.compile("[a-z]+(?:[-'][a-z]+)*")
_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def clean(text: str, limit: int = NAME_LIMIT) -> str:
    """Makes a name from a file safe to show: control, direction and invisible characters become visible escapes.

    Args:
        text: Anything.
        limit: Characters to keep; a longer text loses its middle and says how much.
    """
    if len(text) > limit:
        keep = max(limit // 2 - 12, 8)
        text = f"{text[:keep]} [{len(text) - 2 * keep:,} characters] {text[-keep:]}"
    return visible(text)


def visible(text: str) -> str:
    """`clean` without a limit; what is clean stays as it is."""
    return _UNSAFE.sub(_escape, text)


def clean_block(text: str, limit: int = 2000) -> str:
    """`clean` for text of several lines, which stay lines."""
    return "\n".join(clean(line, limit) for line in text[: limit * 4].replace("\t", "    ").split("\n")[:60])


def _escape(found: re.Match[str]) -> str:
    char = found[0]
    code = ord(char)
    return _ESCAPES.get(char) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def size(value: int | None) -> str:
    """A size, or a dash where it is unknown."""
    return "–" if value is None else format_size(value)


def count(value: int | float | None) -> str:
    """A count with thousands separated, or a dash."""
    return "–" if value is None else f"{value:,.0f}" if value == int(value) else f"{value:,.2f}"


def percent(part: float, whole: float = 1.0) -> str:
    """A share of a whole, "" where the whole is nothing; what is not nothing never reads 0.0%."""
    if not whole:
        return ""
    share = part / whole
    if 0 < abs(share) < 0.0005:
        return "<0.1%" if share > 0 else "-<0.1%"
    if 0.9995 <= share < 1:
        return ">99.9%"
    return f"{share:.1%}"


def ratio(part: float | None, whole: float | None) -> float:
    """part over whole within 0 to 1; 0 where either is unknown."""
    if not part or not whole or whole < 0:
        return 0.0
    return min(max(part / whole, 0.0), 1.0)


def plural(number: int, one: str, many: str = "") -> str:
    """ "1 step", "2,000 steps"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def base(path: str) -> str:
    """The last part of a path of either kind."""
    return _parts(path)[-1] or path


def _parts(path: str) -> list[str]:
    # A backslash separates only in paths of Windows; elsewhere it may be the escape of a character.
    return re.split(r"[/\\]" if re.match(r"[A-Za-z]:\\|\\\\", path) else "/", path)


def short_path(path: str, parts: int = 3) -> str:
    """The last parts of a path, with "…/" where something was left out."""
    pieces = _parts(path)
    return path if len(pieces) <= parts + (pieces[0] == "") else "…/" + "/".join(pieces[-parts:])


def place(file: str, line: int, function: str) -> tuple[str, str]:
    """A frame as ("file:line", "function"), cleaned; unknown parts are left out."""
    where = clean(file) if file and file != "??" else ""
    if where and line:
        where += f":{line}"
    return where, clean(shown_name(function), 200) if function and function != "??" else ""


def width(text: str) -> int:
    """Columns that a text takes in a terminal."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def cut_left(text: str, columns: int, mark: str = "…") -> str:
    """The end of a text that fits, with a mark where its beginning was cut; a path begins with a whole folder."""
    kept = _end(text, columns, mark)
    slash = kept.find("/", len(mark))
    whole = slash > 0 and slash < len(kept) - 1 and " " not in kept[:slash]
    return mark + kept[slash:] if kept != text and whole else kept


def _end(text: str, columns: int, mark: str) -> str:
    if width(text) <= columns:
        return text
    kept, used = [], width(mark)
    for char in reversed(text):
        used += width(char)
        if used > columns:
            break
        kept.append(char)
    return mark + "".join(reversed(kept))


def cut_right(text: str, columns: int, mark: str = "…") -> str:
    """The beginning of a text that fits, with a mark where its end was cut."""
    return _end(text[::-1], columns, mark[::-1])[::-1]


def capital(text: str) -> str:
    """A capital first letter, unless the first word is the name of something."""
    word = text.split(" ", 1)[0].rstrip(",;:.")
    named = not _WORD.fullmatch(word) or text[len(word) : len(word) + 2] == " ("
    return text if named else text[:1].upper() + text[1:]


def sentence(text: str) -> str:
    """A text with a capital and a full stop."""
    text = text.strip()
    return capital(text) + ("" if text.endswith((".", "!", "?", ":", "…")) else ".") if text else ""
