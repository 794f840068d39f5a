"""Pages that `oomctl explain` prints; each lives on the member that it explains. And how one is found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from typing import Final


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


def guide_page(text: str) -> Page:
    """The guide for agents as a page.

    Args:
        text: A skill file: front matter between lines of three hyphens, then paragraphs.
    """
    return Page(
        "",
        "agents",
        "How an agent uses oomctl: what to run, what to read, what not to claim",
        text.partition("\n---\n")[2].strip(),
        ("reading-a-snapshot",),
        ("agent", "skill", "mcp", "llm", "assistant", "automation"),
    )


MAX_QUERY: Final = 2000
"""Characters of a question that are looked at."""

_WORD: Final = re.compile(r"[a-z][a-z0-9_]+", re.IGNORECASE)
_COMMON_LINES: Final = (
    "a about after again all also am an and any are as at be because been before but by can cannot cuda do does doing",
    "for from get gets gib gb gpu had has have how i if in into is it its just kib mean means mib mb memory more much",
    "my no not of on or our out pytorch should so some still tell than that the their them then there these they this",
    "to torch use used using very was we what when where which while who why will with would you your",
)
_COMMON: Final = frozenset(word for line in _COMMON_LINES for word in line.split())
"""Words that say nothing about which page is meant; here "memory" and "torch" are among them."""

_NAME: Final = r"[A-Za-z0-9_\-]+"
_NAMED: Final = 50.0
_SLUG_WEIGHT: Final = 4.0
_KEYWORD_WEIGHT: Final = 4.0
_TITLE_WEIGHT: Final = 3.0
_TEXT_WEIGHT: Final = 1.0


def exact_page(pages: Iterable[Page], what: str) -> Page | None:
    """The page of that code, slug or title; case, blanks, hyphens and underscores do not matter.

    Args:
        pages: Where to look, in order of precedence.
        what: What the user typed.
    """
    wanted = _plain(what)
    candidates = tuple(pages)
    for names in (lambda p: (p.code, p.slug), lambda p: (p.title,), lambda p: (_stem(p.slug.lower()),)):
        for page in candidates:
            if wanted and wanted in {_plain(name) for name in names(page)}:
                return page
    return next((page for page in candidates if _stem(wanted) == _stem(_plain(page.slug))), None) if wanted else None


def find_pages(pages: Sequence[Page], question: str) -> list[Page]:
    """Pages that share words with a question, best first.

    A word counts the more the rarer it is, and the more where it stands in a page's name than in its text.

    Args:
        pages: Where to look.
        question: A few words or a sentence.
    """
    words = set(_words(question[:MAX_QUERY]))
    fields = [_fields(page) for page in pages]
    scores = [0.0] * len(pages)
    for word in words:
        holders = [i for i, known in enumerate(fields) if word in known]
        for i in holders:
            scores[i] += fields[i][word] * log(1 + len(pages) / len(holders))
    # A name of several words that stands in the question whole is meant, whatever else the question says.
    asked = f"-{_plain(' '.join(re.findall(_NAME, question[:MAX_QUERY])))}-"
    for i, page in enumerate(pages):
        if "-" in _plain(page.slug) and f"-{_plain(page.slug)}-" in asked:
            scores[i] += _NAMED
    order = sorted(range(len(pages)), key=lambda i: (-scores[i], i))
    return [pages[i] for i in order if scores[i] > 0]


def _fields(page: Page) -> dict[str, float]:
    """Word -> weight of the places where it stands."""
    weights: dict[str, float] = {}
    for text, weight in (
        (f"{page.code} {page.slug}", _SLUG_WEIGHT),
        (" ".join(page.keywords), _KEYWORD_WEIGHT),
        (page.title, _TITLE_WEIGHT),
        (page.text, _TEXT_WEIGHT),
    ):
        for word in set(_words(text)):
            weights[word] = weights.get(word, 0.0) + weight
    return weights


def _words(text: str) -> list[str]:
    """Words that carry meaning, with their parts where they are joined by underscores."""
    found: list[str] = []
    for match in _WORD.finditer(text.lower()):
        word = match[0].strip("_")
        parts = [word, *word.split("_")] if "_" in word else [word]
        found += [_stem(part) for part in parts if part and part not in _COMMON]
    return found


def _stem(word: str) -> str:
    """Singular and plural, "leaks", "leaking" and "leak", are one word."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word


def _plain(name: str) -> str:
    return "-".join(re.findall(r"[^\s_\-]+", name.lower()))
