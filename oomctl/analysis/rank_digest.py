"""What one rank holds, small enough to be compared with thousands of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oomctl.analysis.frames import basename
from oomctl.analysis.holdings import holdings
from oomctl.errors import OomctlError
from oomctl.model.ranks import Held
from oomctl.model.snapshot import DeviceSnapshot, Snapshot

MOST: Final = 48
"""Stacks that are kept of one rank; the others are one sum."""
DEPTH: Final = 12


def held_at(
    snapshot: Snapshot, device: DeviceSnapshot, at: str, user_roots: Sequence[str] = ()
) -> tuple[tuple[Held, ...], int, int]:
    """(largest stacks, live bytes of the others, live bytes) of a device at a moment.

    Frames are told by the last two parts of their paths, for hosts keep the same code in different places.

    Args:
        snapshot: The file.
        device: One of its devices.
        at: As for `holdings`; what is not there becomes the peak.
        user_roots: Path prefixes that are the user's.
    """
    try:
        found = holdings(snapshot, device, at=at, by="stack", user_roots=tuple(user_roots))
    except OomctlError:
        found = holdings(snapshot, device, at="peak", by="stack", user_roots=tuple(user_roots))
    rows: dict[tuple[tuple[str, int, str], ...], list[int]] = {}
    for row in found.rows:
        users = [line for line in row.stack if line.kind == "user"] or list(row.stack[:1])
        key = tuple((_short(line.file), line.line, line.function) for line in users[:DEPTH])
        entry = rows.setdefault(key, [0, 0])
        entry[0] += row.bytes
        entry[1] += row.blocks
    ordered = sorted(rows.items(), key=lambda item: (-item[1][0], item[0]))
    kept = tuple(Held(key, size, blocks) for key, (size, blocks) in ordered[:MOST])
    return kept, found.active - sum(h.bytes for h in kept), found.active


def _short(path: str) -> str:
    name = basename(path)
    folder = basename(path[: len(path) - len(name)].rstrip("/\\"))
    return f"{folder}/{name}" if folder else name
