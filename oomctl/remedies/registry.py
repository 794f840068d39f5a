"""The catalogue."""

from __future__ import annotations

from typing import Final

from oomctl.model.pages import Page
from oomctl.remedies.base import Entry
from oomctl.remedies.code import CODE
from oomctl.remedies.operations import OPERATIONS

ENTRIES: Final[tuple[Entry, ...]] = (*CODE, *OPERATIONS)
"""Everything that is no allocator setting."""

PAGES: Final[tuple[Page, ...]] = tuple(entry.page for entry in ENTRIES)
"""For `oomctl explain`."""
