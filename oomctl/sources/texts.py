"""Text: logs, tables, tracebacks, messages."""

from __future__ import annotations

import codecs
from typing import Final

from oomctl.progress import Progress
from oomctl.sources.base import Findings, Place
from oomctl.sources.content import Content
from oomctl.sources.looks import is_text

_UTF16: Final = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class TextSource:
    """Anything that reads as text; UTF-16 is what PowerShell's `>` writes."""

    slug = "text"

    def sniff(self, head: bytes) -> bool:
        """Whether it reads as text."""
        for mark, name in _UTF16:
            if head.startswith(mark):
                return is_text(head[2 : len(head) & ~1].decode(name, "replace").encode("utf-8", "replace"))
        return is_text(head)

    def read(self, content: Content, place: Place, progress: Progress) -> Findings:
        """Reads it line by line."""
        from oomctl.sources.text import read_text

        found = read_text(content.chunks(), place.index, place.rank)
        return Findings(found.kind, "text", found.torch, text=found)
