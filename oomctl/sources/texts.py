"""Text: logs, tables, tracebacks, messages."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import Final

from oomctl.progress import Progress
from oomctl.sources.base import Findings, Place
from oomctl.sources.content import Content
from oomctl.sources.looks import is_text

_MARKS: Final = ((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class TextSource:
    """Anything that reads as text; UTF-16 is what PowerShell's `>` writes."""

    slug = "text"

    def sniff(self, head: bytes) -> bool:
        """Whether it reads as text."""
        return is_text(b"".join(_as_utf8([head])))

    def read(self, content: Content, place: Place, progress: Progress) -> Findings:
        """Reads it line by line."""
        from oomctl.sources.text import read_text

        found = read_text(_as_utf8(content.chunks()), place.index, place.rank)
        return Findings(found.kind, "text", found.torch, text=found)


def _as_utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    decoder = None
    first = True
    for chunk in chunks:
        data = chunk
        if first:
            first = False
            for mark, name in _MARKS:
                if chunk.startswith(mark):
                    data = chunk[len(mark) :]
                    decoder = codecs.getincrementaldecoder(name)("replace")
        yield data if decoder is None else decoder.decode(data).encode("utf-8", "replace")
