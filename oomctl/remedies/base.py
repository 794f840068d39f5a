"""An entry of the catalogue: what to change, when it applies, what it costs, and its page."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from oomctl.model.pages import Page

ALWAYS: Final = re.compile("")


@dataclass(frozen=True, slots=True)
class Entry:
    """One piece of advice that is no allocator setting.

    Attributes:
        slug: Stable name; `oomctl explain SLUG` prints the page.
        kind: code or operations.
        classes: Verdict classes it is for, each alone or as "class/subtype".
        title: One line; "{site}" stands for the line of code that it is about.
        why: One or two sentences.
        when: Matches one of the function names in the failing stack, or the operation; `ALWAYS` matches everything.
        phases: Phases of the request that it is for; () is all.
        not_phases: Phases of the request that it is not for.
        not_subtypes: Subtypes of its classes that it is not for.
        unless: Matches a function name that rules it out, or None.
        operation_only: Whether `when` looks at the operation alone.
        caveats: What it costs.
        example: A few lines of code.
        applicability: safe, has_cost or edit_code.
        weight: Where several apply, higher comes first.
    """

    slug: str
    kind: str
    classes: tuple[str, ...]
    title: str
    why: str
    when: re.Pattern[str] = ALWAYS
    phases: tuple[str, ...] = ()
    not_phases: tuple[str, ...] = ()
    not_subtypes: tuple[str, ...] = ()
    unless: re.Pattern[str] | None = None
    operation_only: bool = False
    caveats: tuple[str, ...] = ()
    example: str | None = None
    applicability: str = "edit_code"
    weight: int = 0

    def applies(self, cls: str, subtype: str | None, functions: tuple[str, ...], phase: str) -> bool:
        """Whether it is advice for this failure; the first of `functions` is the operation."""
        if cls not in self.classes and f"{cls}/{subtype}" not in self.classes:
            return False
        if subtype in self.not_subtypes or phase in self.not_phases or (self.phases and phase not in self.phases):
            return False
        if self.unless is not None and any(self.unless.search(name) for name in functions):
            return False
        names = functions[:1] if self.operation_only else functions
        return self.when is ALWAYS or any(self.when.search(name) for name in names)

    @property
    def page(self) -> Page:
        """Page for `oomctl explain`."""
        parts = [self.why]
        if self.example:
            parts.append("\n".join("    " + line for line in self.example.splitlines()))
        if self.caveats:
            parts.append("\n".join(f"- {c}" for c in self.caveats))
        title = placed(self.title, None)
        return Page("", self.slug, title, "\n\n".join(parts), tuple(c.split("/")[0] for c in self.classes))


def placed(title: str, site: str | None) -> str:
    """A title with its line of code, or without one where none is known."""
    if site is not None:
        return title.format(site=site)
    return re.sub(r",? (?:at|before|made at) \{site\}", "", title)
