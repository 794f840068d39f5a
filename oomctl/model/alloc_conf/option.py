"""What one allocator option is: the member type of the table in `options.py`."""

from __future__ import annotations

from dataclasses import dataclass

from oomctl.model.common import Version
from oomctl.model.pages import Page


@dataclass(frozen=True, slots=True)
class Option:
    """One option of the settings string; it explains itself.

    Attributes:
        key: As written before the colon.
        title: What it is about, a few words.
        value: Which values are legal, in words.
        default: Value when it is not given, in words.
        since: First torch that accepts it; None when no version does.
        until: Last torch that accepts it; None when current ones do.
        does: What it does, one to three sentences.
        symptom: What it is good for: what you see when it may help.
        cost: What it costs or risks.
        conflicts: (other option or circumstance, why they do not go together).
        history: (version, what changed there), ascending.
        example: An entry to paste, or "".
        shared: Read from torch 2.10 on by the parser that all accelerators share; else by the CUDA build's own.
        native: Meant for the native allocator, so without effect under backend:cudaMallocAsync.
        see: Slugs of related pages.
    """

    key: str
    title: str
    value: str
    default: str
    since: Version | None
    until: Version | None
    does: str
    symptom: str
    cost: str
    conflicts: tuple[tuple[str, str], ...] = ()
    history: tuple[tuple[Version, str], ...] = ()
    example: str = ""
    shared: bool = False
    native: bool = True
    see: tuple[str, ...] = ()

    def known(self, torch: Version) -> bool:
        """Whether this version's parser accepts the key."""
        return self.since is not None and self.since <= torch and (self.until is None or torch <= self.until)

    @property
    def availability(self) -> str:
        """For example "torch 1.10 and later", "torch 1.13 only", "no released torch"."""
        if self.since is None:
            return "no released torch"
        if self.until == self.since:
            return f"torch {dotted(self.since)} only"
        if self.until is not None:
            return f"torch {dotted(self.since)} to {dotted(self.until)}"
        if self.since > LAST_RELEASE:
            return f"not in torch {dotted(LAST_RELEASE)} or earlier"
        return f"torch {dotted(self.since)} and later"

    @property
    def page(self) -> Page:
        """The page that `oomctl explain KEY` prints."""
        parts = [
            self.does,
            f"Value: {self.value}. Default: {self.default}. Accepted by {self.availability}.",
            f"When to try it: {self.symptom}",
            f"What it costs: {self.cost}",
        ]
        if self.conflicts:
            parts.append("Does not go together with:")
            parts.append("\n".join(f"- {other}: {why}" for other, why in self.conflicts))
        if self.history:
            parts.append("By version:")
            parts.append("\n".join(f"- {dotted(version)}: {what}" for version, what in self.history))
        if self.example:
            parts.append("To set it before the program starts:")
            parts.append(f"    export PYTORCH_CUDA_ALLOC_CONF={self.example}")
            parts.append(f'To check a whole string: oomctl conf "{self.example}"')
        return Page("", self.key, f"{self.key}: {self.title}", "\n\n".join(parts), self.see)


LAST_RELEASE: Version = (2, 14)
"""Newest torch whose settings were examined."""


def dotted(version: Version) -> str:
    """A version as people write it, "2.13"."""
    return f"{version[0]}.{version[1]}"
