"""Pages that `oomctl explain` prints; each lives on the member that it explains."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Page:
    """One explanation.

    Attributes:
        code: Stable code such as "OOM101", or "" for a topic.
        slug: Name to type, for example "fragmentation" or "expandable_segments".
        title: One line.
        text: Plain paragraphs separated by blank lines; lines that start with "- " are list items, lines that start
            with four spaces are literal.
        see: Slugs of related pages.
        keywords: Words that people use for it and that its title and slug lack.
    """

    code: str
    slug: str
    title: str
    text: str
    see: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
