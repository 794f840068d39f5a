"""From the figures of a failed allocation to a class: counterfactuals first, then how large each abnormal share is.

Each rule is arithmetic on one message (and the table printed with it). Rules are tried in order; the first that speaks
decides. What one line cannot carry ends as "uncertain", with what would settle it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oomctl.diagnosis import text_rules_layout as layout
from oomctl.diagnosis import text_rules_request as request
from oomctl.diagnosis import text_rules_room as room
from oomctl.diagnosis.text_opinion import Context, Opinion
from oomctl.diagnosis.text_picture import Picture

Rule = Callable[[Picture, Context], Opinion | None]

RULES: Final[tuple[Rule, ...]] = (
    request.fits_elsewhere,
    request.larger_than_the_card,
    request.fills_an_empty_card,
    request.copy_of_everything,
    layout.rounding,
    layout.private_pools,
    request.peak_given_back,
    layout.fragmentation,
    room.external,
    request.recovered_often,
    room.spilled,
    request.peak,
    room.in_this_process,
    request.first_step,
    request.second_copy,
    room.full,
    room.nothing_decides,
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
