"""Snapshots as pickles: what `torch.cuda.memory._dump_snapshot` writes."""

from __future__ import annotations

from oomctl.model.snapshot import Snapshot
from oomctl.progress import Progress
from oomctl.sources.ahead import fetched_ahead
from oomctl.sources.base import Findings, Place
from oomctl.sources.compiled import has_kernel, read_compiled
from oomctl.sources.content import Content
from oomctl.sources.snapshot_pickle import read_objects, read_pickle


class PickleSource:
    """A pickled memory snapshot, protocols 2 to 5."""

    slug = "pickle"

    def sniff(self, head: bytes) -> bool:
        """Whether it begins with the PROTO opcode."""
        return len(head) >= 2 and head[0] == 0x80 and 2 <= head[1] <= 5

    def read(self, content: Content, place: Place, progress: Progress) -> Findings:
        """Decodes it without running anything in it."""
        protocol = content.head[1]
        snapshot = _streamed(content) if content.again is not None and has_kernel() else read_pickle(content.whole())
        return Findings("snapshot", f"pickle protocol {protocol}", snapshot.torch, (snapshot,))


def _streamed(content: Content) -> Snapshot:
    """Decodes while the input is read, and never holds the whole; reads it again for what only Python can read."""
    with fetched_ahead(content.chunks()) as pieces:
        snapshot = read_compiled(pieces)
    for _ in content.chunks():  # what is left of it tells of damage
        pass
    if snapshot is not None:
        return snapshot
    again = content.again
    return read_objects(b"".join(() if again is None else again()))
