"""The shares at which a figure of a message counts, tuned on labelled reports and stated in `oomctl explain`."""

from __future__ import annotations

from typing import Final

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
DWARFS: Final = 10
"""Times by which memory outside the allocator exceeds what is idle inside, so that the larger share decides alone."""
DWARFED: Final = 0.05
"""Share of the limit up to which idle memory can be dwarfed so."""
LIVES_BESIDE: Final = 0.25
"""Share of live tensors from which a request that exceeds the card is no longer the first tensor of an empty one."""
