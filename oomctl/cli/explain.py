"""`oomctl explain`: a page about a verdict, a setting, a number or a subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from oomctl.cli import exits
from oomctl.cli.options import Json
from oomctl.cli.output import write_stdout
from oomctl.cli.prose import page_lines, printable, wrap
from oomctl.errors import OomctlError

if TYPE_CHECKING:
    from oomctl.model.pages import Page

    Groups = tuple[tuple[str, tuple[Page, ...]], ...]

OTHERS: Final = 4
"""Further pages named below an answer that was searched for."""

COLUMN: Final = 28
"""Where titles start in the list."""

What = Annotated[
    list[str] | None,
    typer.Argument(metavar="[WHAT]...", help="A code, a setting, a row of memory_summary(), or a question in words."),
]


def explain(what: What = None, json: Json = False) -> int:
    """Explain a verdict, a setting, a number or how the allocator works.

    Without WHAT every page is listed.
    """
    from oomctl.api import explanations

    groups = explanations()
    question = " ".join(what or ()).strip()
    if not question:
        _print(_list_json(groups) if json else _list_lines(groups))
        return exits.OK
    page, others = _answer(groups, question)
    _print(_page_json(question, page, others) if json else _page_lines(page, others))
    return exits.OK


def page_about(what: str) -> Page:
    """The page that answers best.

    Args:
        what: A code, a name, or a question in words.

    Raises:
        OomctlError: No page has anything to do with it.
    """
    from oomctl.api import explanations

    return _answer(explanations(), what)[0]


def _answer(groups: Groups, question: str) -> tuple[Page, list[Page]]:
    """The page that answers best, and others where it had to be searched for.

    Raises:
        OomctlError: No page has anything to do with it.
    """
    from oomctl.model.pages import exact_page, find_pages

    pages = [page for _, members in groups for page in members]
    page = exact_page(pages, question)
    if page is not None:
        return page, []
    found = find_pages(pages, question)
    if not found:
        from difflib import get_close_matches

        near = get_close_matches(question.lower(), [page.slug for page in pages], 3, 0.6)
        hint = "did you mean " + " or ".join(near) + "?" if near else "`oomctl explain` lists all pages"
        raise OomctlError(f"no page about {printable(question[:80])!r}", hint)
    return found[0], found[1 : 1 + OTHERS]


def _page_lines(page: Page, others: list[Page]) -> list[str]:
    lines = page_lines(page)
    if others:
        lines += ["", "Not what you asked? Other pages that may answer:"]
        for other in others:
            lines += wrap(f"oomctl explain {other.code or other.slug}: {other.title}", "  ", "    ")
    return lines


def _list_lines(groups: Groups) -> list[str]:
    lines = wrap("Type `oomctl explain NAME`, or ask in your own words.")
    for heading, pages in groups:
        lines += ["", heading]
        for page in pages:
            lines += _entry_lines(page)
    return lines


def _entry_lines(page: Page) -> list[str]:
    """Name and title side by side, the title's further lines below it."""
    name = f"  {page.code}  {page.slug}" if page.code else f"  {page.slug}"
    lines = wrap(_short_title(page), " " * COLUMN)
    if len(name) < COLUMN:
        lines[0] = name + lines[0][len(name) :]
        return lines
    return [name, *lines]


def _short_title(page: Page) -> str:
    """The title without the name that it begins with."""
    head, colon, rest = page.title.partition(": ")
    return rest if colon and head.lower().replace(" ", "-") == page.slug else page.title


def _page_json(question: str, page: Page, others: list[Page]) -> dict[str, Any]:
    return {
        "schema": "oomctl.explain/1",
        "question": question,
        "page": {"code": page.code or None, "slug": page.slug, "title": page.title, "text": page.text, "see": page.see},
        "others": [{"code": other.code or None, "slug": other.slug, "title": other.title} for other in others],
    }


def _list_json(groups: Groups) -> dict[str, Any]:
    return {
        "schema": "oomctl.explain/1",
        "pages": [
            {"group": heading, "code": page.code or None, "slug": page.slug, "title": page.title}
            for heading, pages in groups
            for page in pages
        ],
    }


def _print(what: list[str] | dict[str, Any]) -> None:
    if isinstance(what, list):
        write_stdout("\n".join(what))
        return
    import json

    write_stdout(json.dumps(what, indent=2, ensure_ascii=False))
