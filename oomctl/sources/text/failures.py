"""Failures without allocator figures, and signs: recognised, named, and kept apart."""

from __future__ import annotations

import re
from typing import Final

from oomctl.model.log import OomEvent, Sign
from oomctl.sources.text.base import Findings, Passage, RawEvent
from oomctl.sources.text.kinds import EVENTS_ONLY, HOST, KINDS, Kind
from oomctl.sources.text.normalise import Line
from oomctl.sources.text.squeeze import Squeezed
from oomctl.units import read_size

_KILLED_ALONE: Final = re.compile(r"^\s*(?:.*line \d+:\s*)?\d*\s*Killed(?:\s+\S.*)?\s*$")
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3}){1,6}")
_REST: Final = re.compile(r"[\d.,]+\W*")
_STAMP: Final = re.compile(r"\d{4}[-/]\d\d|\d{1,2}[:/]\d\d(?!\d)")
_RSS: Final = re.compile(r"anon-rss:(\d{1,15})kB", re.I)


class Failures:
    """Reads failures without figures, and signs."""

    slug = "failures"

    def read(self, passage: Passage, found: Findings) -> None:
        """Adds signs, and raw events for failed allocations."""
        seen: set[tuple[str, int]] = set()
        taken: set[int] = set()
        for squeezed in passage.squeezed:
            low = squeezed.low
            for kind in KINDS:
                if not any(word in low for word in kind.needs):
                    continue
                for match in kind.pattern.finditer(squeezed.text):
                    line = squeezed.line(match.start())
                    key = (kind.slug, id(line))
                    if key in seen or not passage.stretch.accepts(line.no):
                        continue
                    seen.add(key)
                    weak_and_taken = kind.weak and id(line) in taken
                    if kind.event:
                        taken.add(id(line))
                    size = _size(_within(match, squeezed))
                    _add(kind, size, line, found, as_event=kind.event and not weak_and_taken)
        for line in passage.lines:
            if passage.stretch.accepts(line.no):
                self._killed(line, found)

    @staticmethod
    def _killed(line: Line, found: Findings) -> None:
        rank = line.rank if line.rank is not None else found.rank
        if "Killed" in line.full and _KILLED_ALONE.match(line.full) and found.room("signs", len(found.signs)):
            found.signs.append(Sign("host_killed", line.full.strip()[:500], line.no, found.source, None, rank))
        rss = _RSS.search(line.text) if "rss" in line.text else None
        if rss and found.room("signs", len(found.signs)):
            size = int(rss[1]) * 1024
            found.signs.append(Sign("killed_rss", line.text.strip()[:500], line.no, found.source, size, rank))


def _add(kind: Kind, size: int | None, line: Line, found: Findings, *, as_event: bool) -> None:
    text = line.text.strip()[:500]
    rank = line.rank if line.rank is not None else found.rank
    if kind.slug not in EVENTS_ONLY and found.room("signs", len(found.signs)):
        found.signs.append(Sign(kind.slug, text, line.no, found.source, size, rank))
    if kind.weak and (kind.slug, rank) in found.weak:
        return
    if not as_event or not found.room("messages", len(found.events)):
        return
    if kind.weak:
        found.weak.add((kind.slug, rank))
    event = OomEvent(
        backend=kind.backend,
        rank=rank,
        tried_to_allocate=size,
        wording=kind.slug,
        torch=kind.torch,
        line=line.no,
        source=found.source,
        text=text,
    )
    found.events.append(
        RawEvent(
            event,
            numbered=size is not None,
            tag=line.tag,
            time=line.time,
            host=kind.slug in HOST,
            weak=kind.weak,
            end=line.no,
            part=line.part,
        )
    )


def _within(match: re.Match[str], squeezed: Squeezed) -> str:
    """The size that a wording prints, if any.

    A count that ends both the wording and its line runs into digits at the start of the next. A line of nothing else
    is its rest, behind a wrap; before a date or a time it ends with its own line; else it is not known where it ends.
    """
    text: str = match.groupdict().get("size") or ""
    if not text or match.end() != match.end("size"):
        return text
    first, last = squeezed.index(match.start("size")), squeezed.index(match.end() - 1)
    for at in range(first + 1, last + 1):
        following = squeezed.lines[at].text.strip()
        if not _REST.fullmatch(following):
            return text[: squeezed.starts[at] - match.start("size")] if _STAMP.match(following) else ""
    return text


def _size(text: str) -> int | None:
    text = text.rstrip(".,")
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")  # bytes are whole: no decimal comma
    return read_size(text) if text else None
