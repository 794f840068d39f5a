"""Snapshots as pickles: what `torch.cuda.memory._dump_snapshot` writes."""

from __future__ import annotations

from oomctl.progress import Progress
from oomctl.sources.base import Findings, Place
from oomctl.sources.content import Content


class PickleSource:
    """A pickled memory snapshot, protocols 2 to 5."""

    slug = "pickle"

    def sniff(self, head: bytes) -> bool:
        """Whether it begins with the PROTO opcode."""
        return len(head) >= 2 and head[0] == 0x80 and 2 <= head[1] <= 5

    def read(self, content: Content, place: Place, progress: Progress) -> Findings:
        """Decodes it without running anything in it."""
        from oomctl.sources.snapshot_pickle import read_content

        protocol = content.head[1]
        snapshot = read_content(content)
        return Findings("snapshot", f"pickle protocol {protocol}", snapshot.torch, (snapshot,))
