"""Splits a settings string the way its writer meant it, and says where that is not how torch splits it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from oomctl.model.alloc_conf.env import ENV_NAMES
from oomctl.model.alloc_conf.options import BY_KEY
from oomctl.model.alloc_conf.parse import entries
from oomctl.model.alloc_conf.types import ConfIssue
from oomctl.model.common import Version

_NAME: Final = re.compile(r"\s*(?:export\s+|set\s+|\$env:)?(?:" + "|".join(ENV_NAMES) + r")\s*=\s*")
_GAP: Final = re.compile(r"(?<=[\w\].%])[ \t\n\v\f\r]+(?=[A-Za-z_][A-Za-z0-9_]*[ \t]*[:=])")


class Piece(NamedTuple):
    """One entry.

    Attributes:
        text: As written.
        key: Before the first colon, without white space.
        value: After it, without white space; "" when there is none.
    """

    text: str
    key: str
    value: str


def split_pieces(text: str, torch: Version) -> tuple[list[Piece], list[ConfIssue]]:
    """The entries as they were meant, and remarks on the separators.

    Args:
        text: The settings string.
        torch: (major, minor).
    """
    issues: list[ConfIssue] = []
    silent = "ignores such an entry silently" if torch < (2, 0) else "does not read it so"
    name = _NAME.match(text)
    if name:
        issues.append(ConfIssue("error", "", "the variable's name belongs outside of the string"))
        text = text[name.end() :]
    bare = text.strip().strip("\"'")
    if bare != text.strip():
        issues.append(ConfIssue("error", "", "quotation marks are part of the string; give it without them"))
    if ";" in bare:
        issues.append(ConfIssue("error", "", f"';' stands where ',' belongs; torch {silent}"))
        bare = bare.replace(";", ",")
    if "=" in bare:
        issues.append(ConfIssue("error", "", f"'=' stands where ':' belongs; torch {silent}"))
        bare = bare.replace("=", ":")
    spaced = _GAP.sub(",", bare)
    if spaced != bare and torch >= (2, 0):
        message = "entries are separated by commas, not by white space, which torch drops so that they run together"
        issues.append(ConfIssue("error", "", message))
    pieces: list[Piece] = []
    for entry in entries(spaced):
        key, colon, value = "".join(entry.split()).partition(":")
        if not colon and key not in BY_KEY and pieces and not pieces[-1].value:
            issues.append(ConfIssue("error", pieces[-1].key, f"',' stands where ':' belongs; torch {silent}"))
            pieces[-1] = Piece(f"{pieces[-1].text},{entry}", pieces[-1].key, key)
        else:
            pieces.append(Piece(entry, key, value))
    return pieces, issues
