"""Pages about the subjects behind the verdicts: the allocator, its numbers, snapshots, settings, saving memory."""

from __future__ import annotations

from typing import Final

from oomctl.diagnosis.topics.allocator import ALLOCATOR_PAGES
from oomctl.diagnosis.topics.howto import HOWTO_PAGES
from oomctl.diagnosis.topics.numbers import NUMBER_PAGES
from oomctl.diagnosis.topics.rows import ROW_PAGES
from oomctl.diagnosis.topics.settings import SETTINGS_PAGES
from oomctl.model.pages import Page

__all__ = ["PAGES", "ROW_PAGES"]

PAGES: Final[tuple[Page, ...]] = (*NUMBER_PAGES, *ALLOCATOR_PAGES, *HOWTO_PAGES, *SETTINGS_PAGES)
"""For `oomctl explain`; to add one, put a page into one of the four files."""
