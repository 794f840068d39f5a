"""Allocator settings as remedies: only where replay, or failing that arithmetic, says that they help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from oomctl.model.alloc_conf import AllocConf, env_name, export_line, format_conf, parse_conf
from oomctl.model.alloc_conf.option import LAST_RELEASE
from oomctl.model.alloc_conf.options import BY_KEY
from oomctl.model.common import Version
from oomctl.model.conclusion import Facts
from oomctl.model.report import Identity, Remedy, ReplayEffect, WhatIf, WhatIfRun

ASYNC: Final = "backend:cudaMallocAsync"
EXPANDABLE: Final = "expandable_segments:True"

_CAVEATS: Final[dict[str, tuple[str, ...]]] = {
    "expandable_segments": ("not together with max_split_size_mb (pointless, and on some versions harmful)",),
    "max_split_size_mb": (
        "blocks above it are never split: without memory pressure it often raises what is reserved",
        "not together with expandable_segments",
    ),
    "roundup_power2_divisions": ("every block is rounded up by as much as 1/divisions of its size",),
    "garbage_collection_threshold": (
        "works only with torch.cuda.set_per_process_memory_fraction (or per_process_memory_fraction)",
    ),
    "backend": ("the driver's pool replaces PyTorch's: no snapshots, no memory history, other options are ignored",),
}

_BEFORE: Final[dict[str, tuple[tuple[Version, str], ...]]] = {
    "expandable_segments": (
        ((2, 5), "sharing CUDA tensors between processes needs torch 2.5 or newer"),
        ((2, 14), "no effect on Windows before torch 2.14"),
    ),
}
"""Further caveats, each with the version that has outgrown it."""

_DOES: Final = {
    "expandable_segments": "Segments grow in place and give back what lies idle in them, so that holes join.",
    "max_split_size_mb": "Blocks above this size are never split, so that large holes stay whole.",
    "garbage_collection_threshold": "Idle blocks go back to the driver before the limit is reached.",
    "roundup_power2_divisions": "Sizes are rounded to few values, so that a freed block fits the next request.",
}
"""What a setting changes, in a sentence; whether that helps is the replay's to say."""


def version_of(facts: Facts) -> Version:
    """A version whose rules apply: the newest that agrees with the evidence."""
    return facts.torch.high or facts.torch.low or LAST_RELEASE


def rounding_dropped(facts: Facts) -> Remedy:
    """Advice to drop roundup_power2_divisions and keep the other settings."""
    current = facts.effective or parse_conf(facts.conf or "", version_of(facts)).conf
    rest = format_conf(replace(current, roundup_power2_divisions=AllocConf().roundup_power2_divisions))
    return Remedy(
        kind="alloc_conf",
        title="Drop roundup_power2_divisions" + (f", keep {rest}" if rest else ""),
        alloc_conf=rest,
        env=_env(facts, rest),
        applicability="safe",
        why="The rounding it asks for is itself what fills the memory.",
        caveats=("sizes vary more without it: keep an eye on idle memory",),
        slug="drop-roundup",
    )


def from_replay(whatif: WhatIf, facts: Facts, subtype: str | None) -> list[Remedy]:
    """Settings under which the failing request would have been served, the one with most room first.

    Args:
        whatif: The replays.
        facts: For the name of the variable and what is on already.
        subtype: What kind of fragmentation it is.
    """
    current = whatif.recorded_conf
    before = next((r.peak_reserved for r in whatif.runs if r.alloc_conf == current), None)
    served = [r for r in whatif.runs if r.served and r.alloc_conf != current]
    ranked = [run for run in sorted(served, key=lambda run: _preference(run, subtype)) if run.alloc_conf or current]
    # Further ones only where they need less memory than the recorded run did.
    kept = [r for n, r in enumerate(ranked) if not n or before is None or (r.peak_reserved or 0) < before]
    return [_advice(run, whatif.identity, before, facts) for run in kept]


def left_open(whatif: WhatIf, facts: Facts, subtype: str | None) -> list[Remedy]:
    """Settings of which replay cannot say whether they serve the request, because the limit is not known exactly.

    Args:
        whatif: The replays.
        facts: For the name of the variable.
        subtype: What kind of fragmentation it is.
    """
    current = whatif.recorded_conf
    before = next((r.peak_reserved for r in whatif.runs if r.alloc_conf == current), None)
    runs = [r for r in whatif.runs if r.served is None and r.alloc_conf and r.alloc_conf != current]
    return [
        _advice(run, whatif.identity, before, facts) for run in sorted(runs, key=lambda run: _preference(run, subtype))
    ]


def _preference(run: WhatIfRun, subtype: str | None) -> tuple[int, int, int, int, str]:
    """Proved before estimated, one option before several, then by the room that is left.

    Caches are kept per stream under every setting of the native backend: where idle memory is stranded in other
    streams, only the driver's pool, which all streams share, goes to the root of it.
    """
    keys = [part.split(":")[0] for part in run.alloc_conf.split(",") if part]
    certainty = {"firm": 0, "likely": 1, "estimate": 3}.get(run.certainty, 2)
    if subtype == "stream_stranded" and keys == ["backend"]:
        certainty = -1
    order = ("expandable_segments", "", "max_split_size_mb", "garbage_collection_threshold", "roundup_power2_divisions")
    first = keys[0] if keys else ""
    place = order.index(first) if first in order else len(order)
    return (certainty, place, len(keys), run.peak_reserved or 0, run.alloc_conf)


def _advice(run: WhatIfRun, identity: Identity, before: int | None, facts: Facts) -> Remedy:
    keys = [part.split(":")[0] for part in run.alloc_conf.split(",") if part]
    caveats = _caveats(keys, facts)
    estimate = run.certainty == "estimate"
    if run.served is None:
        why = "Replay leaves it open: it depends on the exact limit, which only the log of the failure gives."
    elif estimate:
        why = (
            "The driver's own pool joins idle memory that PyTorch's keeps apart; it cannot be replayed, only estimated."
        )
    else:
        why = _does(run.alloc_conf)
    return Remedy(
        kind="alloc_conf",
        title=f"Set {run.alloc_conf}" if run.alloc_conf else "Drop the allocator settings in force",
        alloc_conf=run.alloc_conf,
        env=_env(facts, run.alloc_conf),
        applicability="safe" if keys == ["expandable_segments"] or not keys else "has_cost",
        why=why,
        caveats=caveats,
        replay=ReplayEffect(run.served, run.peak_reserved, before, identity, run.certainty, run.notes),
        slug=keys[0] if keys else "drop-settings",
    )


def _caveats(keys: Sequence[str], facts: Facts) -> tuple[str, ...]:
    """What to know about options, as far as it holds for the versions that may run."""
    low = facts.torch.low or (0,)
    told: list[str] = []
    for key in keys:
        told += _CAVEATS.get(key, ())
        told += [caveat for version, caveat in _BEFORE.get(key, ()) if low < version]
    return tuple(dict.fromkeys(told))


def _does(conf: str) -> str:
    """What settings that serve the request change."""
    parts = [part for part in conf.split(",") if part and not part.endswith(":False")]
    said = dict.fromkeys(_DOES.get(part.split(":")[0], "") for part in parts)
    return " ".join(text for text in said if text) or "Without what is set now the failing request is served."


def unproved(facts: Facts, reason: str) -> list[Remedy]:
    """Settings that usually help against fragmentation, where there is no trace to replay.

    Args:
        facts: What is on already, and which versions may run.
        reason: Why it could not be proved.
    """
    current = parse_conf(facts.conf or "", version_of(facts)).conf
    if current.expandable_segments or facts.backend not in ("cuda", "hip"):
        return []
    is_old = facts.torch.high is not None and facts.torch.high < (2, 1)
    conf = "max_split_size_mb:128" if is_old else EXPANDABLE
    key = conf.partition(":")[0]
    option, caveats = BY_KEY[key], _caveats([key], facts)
    if facts.torch.high is not None and not option.known(facts.torch.high):
        return []
    if facts.torch.low is not None and not option.known(facts.torch.low):
        caveats = (f"{option.availability} only: which one runs is not known here", *caveats)
    return [
        Remedy(
            kind="alloc_conf",
            title=f"Try {conf}",
            alloc_conf=conf,
            env=_env(facts, conf),
            applicability="has_cost",
            why=f"It cures most fragmentation by varying sizes; not proved here: {reason}.",
            caveats=caveats,
            slug=conf.split(":")[0],
        )
    ]


def _env(facts: Facts, conf: str) -> str:
    name = env_name(facts.torch, facts.backend)
    return export_line(name, conf, "linux") if conf else f"unset {name}"
