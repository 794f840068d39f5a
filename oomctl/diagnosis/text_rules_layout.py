"""Rules about how the allocator's memory lies: rounding, private pools, idle memory that cannot be used."""

from __future__ import annotations

from oomctl.diagnosis.text_opinion import SNAPSHOT, WHO_HOLDS, Context, Opinion, books, size
from oomctl.diagnosis.text_picture import Picture
from oomctl.diagnosis.text_thresholds import (
    BEYOND_SLACK,
    DWARFED,
    DWARFS,
    GIANT_REQUEST,
    LAST_STRAW,
    MUCH_OUTSIDE,
    PACKED_FULL,
    PLAIN_FRAGMENTATION,
    SOME_FRAGMENTATION,
    SOME_OUTSIDE,
)
from oomctl.model.common import Skipped
from oomctl.model.report import Contribution


def rounding(p: Picture, c: Context) -> Opinion | None:
    """Rounding inside live blocks is larger than the request, and a tenth of what is in use."""
    if p.table is None or p.table.rounding is None or not p.table.active or p.request is None:
        return None
    waste = p.table.rounding
    if waste >= p.request and waste >= 0.10 * p.table.active:
        return Opinion(
            "fragmentation",
            "rounding",
            "medium",
            f"{size(waste)} of the {size(p.table.active)} in use were never asked for: sizes are rounded up",
            books(p),
        )
    return None


def private_pools(p: Picture, c: Context) -> Opinion | None:
    """Idle memory of private pools would serve the request, and is a tenth of reserved."""
    if not p.pools or p.request is None or not p.reserved:
        return None
    if p.pools >= p.request and p.pools >= 0.10 * p.reserved:
        return Opinion(
            "fragmentation",
            "private_pools",
            "medium",
            f"{size(p.pools)} are idle inside private pools (CUDA graphs), where the request of {size(p.request)} "
            f"may not go",
            books(p),
        )
    return None


def fragmentation(p: Picture, c: Context) -> Opinion | None:
    """Idle memory would have served the request, is a substantial part, and packing it would have lasted."""
    if p.request is None or p.idle is None or p.live is None or not p.limit:
        return None
    if p.share(p.live) >= PACKED_FULL:
        return None
    if p.table is not None and p.table.peak is not None and p.table.peak >= PACKED_FULL * p.limit:
        return None
    covers = p.idle >= p.request
    beside = p.foreign >= MUCH_OUTSIDE and not p.capped
    if not covers:
        packed = p.room is not None and p.idle + p.room >= p.request
        if not packed or p.idle_ratio < PLAIN_FRAGMENTATION or p.share(p.request) >= GIANT_REQUEST:
            return None
    elif p.idle_ratio < (SOME_FRAGMENTATION if p.share(p.request) >= LAST_STRAW or beside else BEYOND_SLACK):
        return None
    if beside and p.share(p.idle) < DWARFED and p.foreign * (p.total or 0) >= DWARFS * p.idle:
        return None
    headline = f"{size(p.idle)} of the {size(p.reserved)} reserved are idle, " + (
        f"yet no hole can take the {size(p.request)} asked for"
        if covers
        else f"and with what is free would have held the {size(p.request)} asked for"
    )
    external = Contribution("external", p.outside or 0, f"{size(p.outside)} of the card lie outside this allocator")
    contributing = (external,) if p.foreign >= SOME_OUTSIDE and not p.capped else ()
    if p.idle_ratio < PLAIN_FRAGMENTATION and beside:
        if p.share(p.idle) < 0.02:
            return None
        if p.share(p.request) < 0.001:
            return Opinion(
                "uncertain",
                None,
                "low",
                f"Two causes stand side by side: {size(p.idle)} idle in the cache and {size(p.outside)} outside the "
                f"allocator, "
                f"for a last straw of {size(p.request)}",
                books(p),
                (Contribution("fragmentation", p.idle, f"{size(p.idle)} are idle"), external),
                (WHO_HOLDS,),
            )
    sure = covers and p.idle_ratio >= 0.3 and p.idle >= 1.5 * p.request
    confirmed = (
        p.table is not None
        and p.table.non_releasable is not None
        and p.table.non_releasable >= p.request
        and p.idle_ratio >= 0.3
    )
    return Opinion(
        "fragmentation",
        "split_segments" if confirmed else None,
        "high" if sure and confirmed else "medium" if sure or confirmed else "low",
        headline,
        books(p),
        contributing,
        (
            Skipped(
                "whether another setting would have served the request",
                "totals do not show how the holes lie",
                SNAPSHOT,
            ),
        ),
    )
