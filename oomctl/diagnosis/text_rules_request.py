"""Rules about the request itself: larger than the card, a peak of its own, refused although there was room."""

from __future__ import annotations

from oomctl.diagnosis.text_opinion import WHO_HOLDS, Context, Opinion, books, percent, size
from oomctl.diagnosis.text_picture import Picture
from oomctl.diagnosis.text_stack import ONTO_ITS_GPU
from oomctl.diagnosis.text_thresholds import (
    BIG_REQUEST,
    BUILDING_UP,
    GIANT_REQUEST,
    LIVES_BESIDE,
    PLAIN_FRAGMENTATION,
    SOME_OUTSIDE,
)
from oomctl.model.common import Skipped
from oomctl.model.report import Contribution
from oomctl.units import MIB


def fits_elsewhere(p: Picture, c: Context) -> Opinion | None:
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
    if p.breaks_off:
        return Opinion(
            "uncertain",
            None,
            "low",
            f"{size(p.request)} were refused although {size(p.free)} were free; the message breaks off before it says "
            "what the program may take",
            books(p),
            limits=(
                Skipped(
                    "the end of the message",
                    "what is allocated, idle and allowed comes last in it, and is missing",
                    "the whole log",
                ),
            ),
        )
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


def larger_than_the_card(p: Picture, c: Context) -> Opinion | None:
    """The request is larger than the limit: at twice it a shape has blown up, below that the card is too small."""
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
            "impossible_request",
            "medium",
            f"One request of {size(p.request)} is {times:.1f} times the {size(p.limit)} there are: a shape has blown "
            f"up",
            books(p),
        )
    if p.live is not None and p.share(p.live) >= LIVES_BESIDE:
        return Opinion(
            "transient_peak",
            "oversized_request",
            "medium",
            f"One request of {size(p.request)} is larger than all of the {size(p.limit)} there are; what it came on "
            f"top of is {size(p.live)}",
            books(p),
        )
    return Opinion(
        "capacity",
        None,
        "low",
        f"The single request of {size(p.request)} is larger than the {size(p.limit)} there are",
        books(p),
    )


def fills_an_empty_card(p: Picture, c: Context) -> Opinion | None:
    """One tensor nearly as large as the card, while almost nothing is live."""
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


def copy_of_everything(p: Picture, c: Context) -> Opinion | None:
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
            limits=(WHO_HOLDS,),
        )
    return None


def peak_given_back(p: Picture, c: Context) -> Opinion | None:
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


def recovered_often(p: Picture, c: Context) -> Opinion | None:
    """The program ran out before and went on: the floor fits, only some steps do not."""
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


def peak(p: Picture, c: Context) -> Opinion | None:
    """The request is a large share of what there is, or a line that multiplies two long dimensions made it."""
    if p.request is None or p.within_reach is None or p.within_reach <= 0:
        return None
    share = p.request / p.within_reach
    what = c.large or c.copies
    asked = f" by `{what[:80]}`" if what else ""
    beside = Contribution("external", p.outside or 0, f"{size(p.outside)} of the card lie outside this allocator")
    if share >= BIG_REQUEST:
        return Opinion(
            "transient_peak",
            "oversized_request" if share >= GIANT_REQUEST else "step_growth",
            "medium" if share >= GIANT_REQUEST else "low",
            f"One request of {size(p.request)}, {percent(share)} of what there is, came on top of "
            f"{size(p.live)}{asked}",
            books(p),
            (beside,) if p.foreign >= SOME_OUTSIDE and not p.capped else (),
        )
    if share >= 0.005 and c.large:
        return Opinion(
            "transient_peak",
            "step_growth",
            "low",
            f"`{c.large[:80]}` asked for {size(p.request)} at once on top of {size(p.live)}",
            books(p),
            limits=(WHO_HOLDS,),
        )
    return None


def first_step(p: Picture, c: Context) -> Opinion | None:
    """The optimizer's first step makes state that stays: the failure lies in making it."""
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


def second_copy(p: Picture, c: Context) -> Opinion | None:
    """A checkpoint's state is copied, or read, onto the card beside what is live: it goes when loading is done."""
    names = {frame.name for frame in p.event.traceback}
    if not names & {"load_state_dict", "load", "_load", "restore"} or p.request is None:
        return None
    if not names & {"deepcopy", "_process_value_according_to_param_policy", *ONTO_ITS_GPU}:
        return None
    return Opinion(
        "transient_peak",
        "step_growth",
        "low",
        f"A checkpoint's tensors are put onto the card beside the {size(p.live)} that are live: both at once do not "
        f"fit",
        books(p),
        limits=(WHO_HOLDS,),
    )
