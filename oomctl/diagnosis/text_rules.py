"""From the figures of a failed allocation to a class: counterfactuals first, then how large each abnormal share is.

Each rule is arithmetic on one message (and the table printed with it). Rules are tried in order; the first that speaks
decides. What one line cannot carry ends as "uncertain", with what would settle it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oomctl.diagnosis.text_opinion import SERIES, SNAPSHOT, Context, Opinion, books, percent, size
from oomctl.diagnosis.text_picture import Picture
from oomctl.model.common import Skipped
from oomctl.model.report import Contribution
from oomctl.units import GIB, MIB

Rule = Callable[[Picture, Context], Opinion | None]

BIG_REQUEST: Final = 0.10
"""Share of the reachable memory from which a single request is a peak of its own, not a last straw."""
GIANT_REQUEST: Final = 0.25
"""Share from which a request is itself the abnormality, however the cache lies."""
NEARLY_FULL: Final = 0.85
"""Share of live tensors from which the card is simply full."""
PACKED_FULL: Final = 0.90
"""Share of live tensors from which perfect packing would only delay the failure."""
PLAIN_FRAGMENTATION: Final = 0.15
"""Idle share of reserved from which idle memory that covers the request is fragmentation, whatever else holds."""
SOME_FRAGMENTATION: Final = 0.015
"""Idle share of reserved below which idle memory is ordinary slack."""
LAST_STRAW: Final = 0.01
"""Share of the limit below which a request says nothing by itself: nearly every full card has that much idle."""
BEYOND_SLACK: Final = 0.05
"""Idle share of reserved from which idle memory is no ordinary slack even when the request is a last straw."""
MUCH_OUTSIDE: Final = 0.20
"""Share of the card outside the allocator, beyond a context, from which it is the first suspect."""
SOME_OUTSIDE: Final = 0.10
"""The same, where the message shows that it lies in this very process."""
BUILDING_UP: Final = 1.25
"""All allocations over the peak up to which nothing was ever given back: loading, or the first pass."""

_WHAT_GREW: Final = Skipped("whether live memory grows from step to step", "one failure is one point in time", SERIES)
_WHO_HOLDS: Final = Skipped("what holds the live memory", "a message has totals only", SNAPSHOT)


def _fits_elsewhere(p: Picture, c: Context) -> Opinion | None:
    """The device had room: a limit of the driver or the operating system, not exhaustion."""
    if p.request is None or p.capped:
        return None
    if p.event.backend == "xpu" and p.free is None and p.total is not None and p.reserved is not None:
        if p.request + p.reserved < 0.9 * p.total:
            return Opinion(
                "uncertain",
                None,
                "low",
                f"{size(p.request)} were refused on a card of {size(p.total)} with {size(p.reserved)} reserved: "
                "a limit on single allocations, not a full card",
                books(p),
            )
        return None
    if p.free is None or p.free - p.request < max(0.05 * p.request, 128 * MIB):
        return None
    return Opinion(
        "uncertain",
        None,
        "low",
        f"{size(p.request)} were refused although {size(p.free)} were free: memory was not short on the device",
        books(p),
        limits=(
            Skipped(
                "why the driver refused",
                "free memory exceeds the request: a limit of the driver, the operating system (commit, WSL, visible "
                "window) or another process that was faster",
                "the same allocation alone in a fresh process, with nvidia-smi running beside it",
            ),
        ),
    )


def _larger_than_the_card(p: Picture, c: Context) -> Opinion | None:
    if p.request is None or not p.total or not p.limit or p.request <= p.limit:
        return None
    times = p.request / p.limit
    if p.live is not None and p.live > p.total:
        return Opinion(
            "capacity",
            None,
            "low",
            f"{size(p.live)} live and {size(p.request)} asked for on a card of {size(p.total)}: far more than it has",
            books(p),
        )
    if times >= 2:
        return Opinion(
            "transient_peak",
            "oversized_request",
            "medium",
            f"One request of {size(p.request)} is {times:.1f} times the {size(p.limit)} there are: a shape has blown "
            f"up",
            books(p),
        )
    return Opinion(
        "capacity",
        None,
        "low",
        f"The single request of {size(p.request)} is larger than the {size(p.limit)} there are",
        books(p),
    )


def _fills_an_empty_card(p: Picture, c: Context) -> Opinion | None:
    if p.request is None or p.live is None or not p.limit:
        return None
    if p.share(p.request) >= 0.9 and p.share(p.live) <= 0.1:
        return Opinion(
            "capacity",
            None,
            "low",
            f"One tensor of {size(p.request)} is asked of an almost empty card of {size(p.limit)}",
            books(p),
        )
    return None


def _copy_of_everything(p: Picture, c: Context) -> Opinion | None:
    """The request equals what is live: a second set of the same size (gradients, a main copy, an optimizer buffer)."""
    if p.request is None or not p.live or p.share(p.request) < 0.2 or c.phase == "saving" or c.copies:
        return None
    if abs(p.request - p.live) <= 0.01 * p.live:
        return Opinion(
            "capacity",
            None,
            "low",
            f"The request of {size(p.request)} is as large as all that is live: a second set of buffers, and it does "
            f"not fit",
            books(p),
            limits=(_WHO_HOLDS,),
        )
    return None


def _rounding(p: Picture, c: Context) -> Opinion | None:
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


def _private_pools(p: Picture, c: Context) -> Opinion | None:
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


def _peak_given_back(p: Picture, c: Context) -> Opinion | None:
    """The table, printed after the exception, shows that most of what was live went away with it."""
    t = p.table
    if t is None or p.live is None or t.cur is None or p.request is None or p.within_reach is None:
        return None
    gone = p.live - t.cur
    if gone < 0.5 * p.live or p.request < BIG_REQUEST * p.within_reach:
        return None
    if p.idle is not None and p.idle >= p.request and p.idle_ratio >= PLAIN_FRAGMENTATION:
        return None
    return Opinion(
        "transient_peak",
        "oversized_request" if p.request >= GIANT_REQUEST * p.within_reach else "step_growth",
        "medium",
        f"{size(gone)} of the {size(p.live)} live at the failure belonged to the failing step alone, "
        f"and it asked for {size(p.request)} more",
        books(p),
    )


def _fragmentation(p: Picture, c: Context) -> Opinion | None:
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
                (_WHO_HOLDS,),
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


def _external(p: Picture, c: Context) -> Opinion | None:
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
                (_WHAT_GREW,),
            )
        return None
    if p.foreign < MUCH_OUTSIDE or p.share(p.request) > p.foreign:
        return None
    t = p.table
    own = (p.reserved or 0) / p.total if p.total else 0.0
    if t is not None and t.peak is not None and p.live is not None and own >= 0.05:
        building = t.turnover is not None and t.turnover <= BUILDING_UP
        new_high = p.live + (p.request or 0) > t.peak
        if new_high and not building:
            return Opinion(
                "uncertain",
                None,
                "low",
                f"Other programs hold {size(p.outside)} of the {size(p.total)}, and this one stood at the highest it "
                f"ever "
                f"had, {size(p.live)}: either may be the cause",
                books(p),
                (Contribution("external", p.outside, f"{size(p.outside)} are held by others"),),
                (_WHAT_GREW,),
            )
    elsewhere = p.others is not None and p.others >= 0.5 * p.outside
    inside = p.non_pytorch is not None and p.non_pytorch > 0.5 * p.outside
    subtype = "other_processes" if elsewhere else "non_pytorch" if inside else None
    who = "other processes hold" if elsewhere else "this process holds outside PyTorch" if inside else "others hold"
    plain = p.foreign >= 0.6 and own < 0.05
    return Opinion(
        "external",
        subtype,
        "high" if plain and elsewhere else "medium" if p.foreign >= 0.4 else "low",
        f"{who[0].upper()}{who[1:]} {size(p.outside)} of the {size(p.total)}; this program's allocator has "
        f"{size(p.reserved)}",
        books(p),
    )


def _recovered_often(p: Picture, c: Context) -> Opinion | None:
    ooms = p.table.ooms if p.table is not None else None
    if p.event.recovered or (ooms is not None and ooms >= 3):
        times = f"{ooms} times" if ooms and ooms >= 2 else "at least once"
        return Opinion(
            "transient_peak",
            None,
            "low",
            f"The program ran out {times} and went on: only some steps need more than there is",
            books(p),
        )
    return None


def _peak(p: Picture, c: Context) -> Opinion | None:
    if p.request is None or p.within_reach is None:
        return None
    share = p.request / p.within_reach
    what = c.large or c.copies
    asked = f" by `{what[:80]}`" if what else ""
    if share >= BIG_REQUEST:
        return Opinion(
            "transient_peak",
            "oversized_request" if share >= GIANT_REQUEST else "step_growth",
            "medium" if share >= GIANT_REQUEST else "low",
            f"One request of {size(p.request)}, {percent(share)} of what there is, came on top of "
            f"{size(p.live)}{asked}",
            books(p),
        )
    if share >= 0.005 and c.large:
        return Opinion(
            "transient_peak",
            "step_growth",
            "low",
            f"`{c.large[:80]}` asked for {size(p.request)} at once on top of {size(p.live)}",
            books(p),
            limits=(_WHO_HOLDS,),
        )
    return None


def _in_this_process(p: Picture, c: Context) -> Opinion | None:
    if p.non_pytorch is None or not p.total or p.capped:
        return None
    extra = max(p.non_pytorch - 600 * MIB, 0)
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


def _first_step(p: Picture, c: Context) -> Opinion | None:
    if c.phase != "optimizer":
        return None
    names = {frame.name for frame in p.event.traceback}
    building = p.table is not None and p.table.turnover is not None and p.table.turnover <= BUILDING_UP
    if "_init_group" in names or building:
        return Opinion(
            "transient_peak",
            "first_step",
            "low",
            f"The optimizer's first step makes its state: with {size(p.live)} live, {size(p.request)} more do not fit",
            books(p),
        )
    return None


def _spilled(p: Picture, c: Context) -> Opinion | None:
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


def _full(p: Picture, c: Context) -> Opinion | None:
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
        return _leak_or_capacity(p, f"after {t.turnover:.1f} times the peak was allocated and freed")
    if p.capped:
        return Opinion(
            "uncertain",
            None,
            "low",
            f"A limit of {size(p.limit)}, set by the program on a card of {size(p.total)}, is reached with "
            f"{size(p.live)} live",
            books(p),
            limits=(_WHAT_GREW,),
        )
    if c.steps is not None and c.steps >= 2:
        return _leak_or_capacity(p, f"after {c.steps:,} steps that went well")
    if c.trial is not None:
        return _leak_or_capacity(p, f"in trial {c.trial} of a search that runs many in one process")
    if c.phase == "evaluation" and p.share(p.request) < 0.02:
        return _leak_or_capacity(
            p, "while only evaluating, where kept results or a missing no_grad() fill a card as well"
        )
    return Opinion(
        "capacity",
        None,
        "low",
        f"Live tensors fill {size(p.live)} of the {size(reach)} there are; the {size(p.request)} asked for are a "
        f"last straw",
        books(p),
        limits=(_WHAT_GREW, _WHO_HOLDS),
    )


def _leak_or_capacity(p: Picture, when: str) -> Opinion:
    return Opinion(
        "uncertain",
        None,
        "low",
        f"Live tensors fill {size(p.live)} of {size(p.within_reach)} {when}: a leak and a model that is too large "
        f"look the same here",
        books(p),
        limits=(_WHAT_GREW, _WHO_HOLDS),
    )


def _nothing_decides(p: Picture, c: Context) -> Opinion | None:
    parts = [
        Contribution(cls, share, f"{size(share)}")
        for cls, share in (("fragmentation", p.idle or 0), ("external", p.outside or 0))
        if share > GIB // 4
    ]
    known = p.request is not None
    return Opinion(
        "uncertain",
        None,
        "low",
        (f"{size(p.request)} could not be had" if known else "An allocation failed")
        + (
            ", and no single cause stands out in the figures"
            if p.live is not None
            else "; the message shows no more figures"
        ),
        books(p),
        tuple(sorted(parts, key=lambda part: -part.share)),
        (_WHO_HOLDS,),
    )


RULES: Final[tuple[Rule, ...]] = (
    _fits_elsewhere,
    _larger_than_the_card,
    _fills_an_empty_card,
    _copy_of_everything,
    _rounding,
    _private_pools,
    _peak_given_back,
    _fragmentation,
    _external,
    _recovered_often,
    _spilled,
    _peak,
    _in_this_process,
    _first_step,
    _full,
    _nothing_decides,
)


def weigh(p: Picture, c: Context) -> Opinion:
    """The first rule that speaks.

    Args:
        p: The failure's figures.
        c: What else the text shows.
    """
    for rule in RULES:
        opinion = rule(p, c)
        if opinion is not None:
            return opinion
    raise AssertionError("unreachable: the last rule always speaks")
