"""The public API: load, diagnose, render."""

from __future__ import annotations

from oomctl.model.evidence import Evidence
from oomctl.model.report import Report


def load(*paths: str) -> Evidence:
    """Reads inputs into one incident."""
    import gzip
    from pathlib import Path

    from oomctl.model.common import InputFile, VersionRange
    from oomctl.sources.snapshot_pickle import read_pickle

    inputs, snapshots = [], []
    for path in paths:
        data = Path(path).read_bytes()
        inputs.append(InputFile(path, "snapshot", "pickle", VersionRange(), None, len(data)))
        snapshots.append(read_pickle(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data))
    return Evidence(inputs=tuple(inputs), snapshots=tuple(snapshots))


def diagnose(evidence: Evidence) -> Report:
    """Concludes."""
    raise NotImplementedError


def render(report: Report, fmt: str) -> str:
    """Renders."""
    raise NotImplementedError
