"""What a source is: it knows its format by content and turns it into findings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from oomctl.model.common import Skipped, VersionRange
from oomctl.model.log import TextFindings

if TYPE_CHECKING:
    from oomctl.model.snapshot import Snapshot
    from oomctl.progress import Progress
    from oomctl.sources.content import Content


@dataclass(frozen=True, slots=True)
class Findings:
    """What one piece of content holds.

    Attributes:
        kind: As `InputFile.kind`.
        format: Encoding, for example "pickle protocol 4" or "text".
        torch: Versions that could have written it.
        snapshots: Decoded snapshots.
        text: What a text proves; None for other formats.
        report: A report of oomctl's own, as parsed JSON; None for other formats.
        skipped: What could not be read, and why.
    """

    kind: str
    format: str
    torch: VersionRange = VersionRange()
    snapshots: tuple[Snapshot, ...] = ()
    text: TextFindings | None = None
    report: Mapping[str, object] | None = None
    skipped: tuple[Skipped, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where content stands among the inputs.

    Attributes:
        name: As the user knows it, for example "run.zip!rank0.log".
        index: Index into `Evidence.inputs`.
        rank: Rank that the name tells, or None.
    """

    name: str
    index: int
    rank: int | None


class Source(Protocol):
    """One format. Members hold no state; `read` raises nothing but `OomctlError`."""

    slug: str

    def sniff(self, head: bytes) -> bool:
        """Whether content that begins with these bytes (up to 64 KiB) is of this format."""

    def read(self, content: Content, place: Place, progress: Progress) -> Findings:
        """Reads it.

        Raises:
            OomctlError: The content is of this format but cannot be used; the message does not name the file.
        """
