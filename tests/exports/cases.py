"""Recorded runs that stand for the kinds of snapshots there are."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import oomctl
from oomctl.analysis.choose import chosen_device
from oomctl.analysis.incident import Incident, incident
from oomctl.model.evidence import Evidence

CAPTURES = Path(__file__).parents[2] / "fixtures" / "captures"
NAMES = ("kv-cat", "graph-pools", "losses-kept-ring", "logits-upcast-expandable", "healthy-steady", "varlen-train")
"""Fragmented; private pools; a trace without its beginning and without stacks; expandable; no failure; steps."""


def path(name: str) -> str:
    return str(CAPTURES / name / "snapshot.pickle.gz")


@cache
def evidence(name: str) -> Evidence:
    return oomctl.load(path(name))


@cache
def concluded(name: str) -> Incident:
    snapshot, device = chosen_device(evidence(name).snapshots)
    return incident(snapshot, device)
