"""Failures without allocator figures, and signs: recognised, named, and kept apart."""

from __future__ import annotations

import re
from typing import Final

from oomctl.model.log import OomEvent, Sign
from oomctl.sources.text.base import Findings, Passage, RawEvent
from oomctl.sources.text.kinds import EVENTS_ONLY, HOST, KINDS, Kind
from oomctl.sources.text.normalise import Line
from oomctl.units import read_size

_KILLED_ALONE: Final = re.compile(r"^\s*(?:.*line \d+:\s*)?\d*\s*Killed(?:\s+\S.*)?\s*$")
_THOUSANDS: Final = re.compile(r"\d{1,3}(?:,\d{3}){1,6}")
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
                    _add(kind, match, line, found, as_event=kind.event and not weak_and_taken)
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


def _add(kind: Kind, match: re.Match[str], line: Line, found: Findings, *, as_event: bool) -> None:
    size = _size(match)
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


def _size(match: re.Match[str]) -> int | None:
    text = (match.groupdict().get("size") or "").rstrip(".,")
    if _THOUSANDS.fullmatch(text):
        text = text.replace(",", "")  # bytes are whole: no decimal comma
    return read_size(text) if text else None
