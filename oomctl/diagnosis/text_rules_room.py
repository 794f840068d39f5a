"""Rules about what fills the card: others, this process beside the allocator, or live tensors."""

from __future__ import annotations

from oomctl.diagnosis.outside import holders
from oomctl.diagnosis.text_opinion import WHAT_GREW, WHO_HOLDS, Context, Opinion, books, size
from oomctl.diagnosis.text_picture import ORDINARY_CONTEXT, Picture
from oomctl.diagnosis.text_thresholds import BIG_REQUEST, BUILDING_UP, MUCH_OUTSIDE, NEARLY_FULL, SOME_OUTSIDE
from oomctl.model.report import Contribution
from oomctl.units import GIB


def external(p: Picture, c: Context) -> Opinion | None:
    """Memory outside the allocator, beyond a context, is a large share of the card, and larger than the request."""
    if p.capped or p.outside is None or (p.request is None and p.total is None):
        return None
    if p.event.backend == "mps":
        if p.share(p.outside) >= 0.5 and p.outside > (p.live or 0):
            return Opinion(
                "external",
                "other_processes",
                "low",
                f"{size(p.outside)} of the {size(p.limit)} allowed are held outside torch's tensors, which have "
                f"{size(p.live)}",
                books(p),
            )
        if p.share(p.outside) >= MUCH_OUTSIDE and p.share(p.request) < BIG_REQUEST:
            return Opinion(
                "uncertain",
                None,
                "low",
                f"{size(p.live)} of tensors and {size(p.outside)} beside them fill the {size(p.limit)} allowed: "
                "what lies beside them may be this program's own caches or another program",
                books(p),
                (Contribution("external", p.outside, f"{size(p.outside)} are held outside torch's tensors"),),
                (WHAT_GREW,),
            )
        return None
    if p.foreign < MUCH_OUTSIDE or p.share(p.request) > p.foreign:
        return None
    t = p.table
    own = (p.reserved or 0) / p.total if p.total else 0.0
    elsewhere = p.others is not None and p.others >= 0.5 * p.outside
    inside = p.non_pytorch is not None and p.non_pytorch > 0.5 * p.outside
    subtype = "other_processes" if elsewhere else "non_pytorch" if inside else None
    who, held = holders(p.others, p.non_pytorch, p.outside, subtype)
    headline = f"{who[0].upper()}{who[1:]} {size(held)} of the {size(p.total)}"
    if t is not None and t.peak is not None and p.live is not None and own >= 0.05:
        building = t.turnover is not None and t.turnover <= BUILDING_UP
        new_high = p.live + (p.request or 0) > t.peak
        if new_high and not building:
            return Opinion(
                "uncertain",
                None,
                "low",
                f"{headline}, and this program stood at the highest it ever had, {size(p.live)}: either may be the "
                f"cause",
                books(p),
                (Contribution("external", held, headline),),
                (WHAT_GREW,),
            )
    plain = p.foreign >= 0.6 and own < 0.05
    return Opinion(
        "external",
        subtype,
        "high" if plain and elsewhere else "medium" if p.foreign >= 0.4 else "low",
        f"{headline}; this program's allocator has {size(p.reserved)}",
        books(p),
    )


def in_this_process(p: Picture, c: Context) -> Opinion | None:
    """The message shows a tenth of the card in this very process but outside the allocator."""
    if p.non_pytorch is None or not p.total or p.capped:
        return None
    extra = max(p.non_pytorch - ORDINARY_CONTEXT, 0)
    if extra >= SOME_OUTSIDE * p.total:
        return Opinion(
            "external",
            "non_pytorch",
            "low",
            f"This process holds {size(p.non_pytorch)} outside PyTorch's allocator: graphs, NCCL, kernels or another "
            f"library",
            books(p),
        )
    return None


def spilled(p: Picture, c: Context) -> Opinion | None:
    """More is live than the card has: the driver spilled into shared memory."""
    if p.live is None or not p.total or p.live <= p.total:
        return None
    return Opinion(
        "capacity",
        None,
        "low",
        f"{size(p.live)} are live on a card of {size(p.total)}: the driver spilled into shared memory, and that is "
        f"full too",
        books(p),
    )


def full(p: Picture, c: Context) -> Opinion | None:
    """Live tensors fill what there is, and the request is a last straw."""
    reach = p.within_reach
    if p.live is None or not reach or p.live + (p.pools or 0) < NEARLY_FULL * reach:
        return None
    t = p.table
    if t is not None and t.turnover is not None:
        if t.turnover <= BUILDING_UP:
            return Opinion(
                "capacity",
                None,
                "medium",
                f"{size(p.live)} were built up and almost nothing was ever freed: what stays does not fit in "
                f"{size(reach)}",
                books(p),
            )
        return leak_or_capacity(p, f"after {t.turnover:.1f} times the peak was allocated and freed")
    if p.capped:
        return Opinion(
            "uncertain",
            None,
            "low",
            f"A limit of {size(p.limit)}, set by the program on a card of {size(p.total)}, is reached with "
            f"{size(p.live)} live",
            books(p),
            limits=(WHAT_GREW,),
        )
    if c.steps is not None and c.steps >= 2:
        return leak_or_capacity(p, f"after {c.steps:,} steps that went well")
    if c.trial is not None:
        return leak_or_capacity(p, f"in trial {c.trial} of a search that runs many in one process")
    if c.phase == "evaluation" and p.share(p.request) < 0.02:
        return leak_or_capacity(
            p, "while only evaluating, where kept results or a missing no_grad() fill a card as well"
        )
    filled = f"Live tensors fill {size(p.live)} of the {size(reach)} there are"
    if p.live > reach:
        filled = f"Live tensors hold {size(p.live)}, and {size(p.outside)} lie beside them, of {size(p.limit)}"
    return Opinion(
        "capacity",
        None,
        "low",
        f"{filled}; the {size(p.request)} asked for are a last straw",
        books(p),
        limits=(WHAT_GREW, WHO_HOLDS),
    )


def leak_or_capacity(p: Picture, when: str) -> Opinion:
    """The card is full of live tensors after work that went well: one point in time cannot tell which."""
    return Opinion(
        "uncertain",
        None,
        "low",
        f"Live tensors fill {size(p.live)} of {size(p.within_reach)} {when}: a leak and a model that is too large "
        f"look the same here",
        books(p),
        limits=(WHAT_GREW, WHO_HOLDS),
    )


def nothing_decides(p: Picture, c: Context) -> Opinion | None:
    """No rule spoke: says so, with the largest shares beside it."""
    parts = [
        Contribution(cls, share, f"{size(share)}")
        for cls, share in (("fragmentation", p.idle or 0), ("external", p.outside or 0))
        if share > GIB // 4
    ]
    failed = f"{size(p.request)} could not be had" if p.request is not None else "An allocation failed"
    if p.live is None:
        headline = f"{failed}; the message " + ("breaks off" if p.breaks_off else "shows no more figures")
    elif p.unaccounted is not None and p.share(p.unaccounted) >= MUCH_OUTSIDE:
        parts = [Contribution("external", p.unaccounted, f"{size(p.unaccounted)} may be held by others"), *parts]
        headline = (
            f"{failed}: {size(p.unaccounted)} of the {size(p.total)} are neither free nor this program's tensors; "
            f"its own cache or other programs hold them"
        )
    else:
        headline = f"{failed}, and no single cause stands out in the figures"
    return Opinion(
        "uncertain",
        None,
        "low",
        headline,
        books(p),
        tuple(sorted(parts, key=lambda part: -part.share)),
        (WHO_HOLDS,),
    )
