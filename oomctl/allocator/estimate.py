"""backend:cudaMallocAsync as an estimate: the driver's own pool keeps no blocks that could be modelled.

What is known is the live bytes at every request. A request is taken to be served if they fit. The pool's own reserved
memory was seen to lie up to 22 % above its live bytes, which only matters if other memory needs the room.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oomctl.allocator.requests import Op
from oomctl.allocator.selftest import Recording
from oomctl.model.coding import coded
from oomctl.model.report import WhatIfRun


def async_run(recording: Recording, text: str, limits: Sequence[int], points: int) -> WhatIfRun:
    """The run of one setting with this backend.

    Args:
        recording: As read from the trace.
        text: The setting.
        limits: Bytes; the values that the limit may have.
        points: Most points of the curve.
    """
    requests = recording.requests
    stop = len(requests) if recording.until is None else requests.row_of(recording.until, "right")
    op, block, size = requests.op[:stop], requests.block[:stop], requests.size[:stop]
    old = {b.key: b.request for s in requests.start.segments for b in s.blocks}
    lives = int(block.max(initial=-1)) + 1
    of_life = np.zeros(max([lives - 1, *old]) + 1 if lives or old else 0, np.int64)
    of_life[list(old)] = list(old.values())
    allocs = op == Op.ALLOC
    of_life[block[allocs]] = size[allocs]
    change = np.zeros(stop, np.int64)
    change[allocs] = size[allocs]
    frees = (op == Op.FREE) | (op == Op.FREE_REQUESTED)
    change[frees] = -of_life[block[frees]]
    del of_life, allocs, frees
    live = np.cumsum(change, out=change)
    live += sum(old.values())
    failed = recording.until is not None
    if failed:
        live[-1] += size[-1]
    peak = int(live.max(initial=0))
    verdicts = {peak <= limit for limit in limits}
    fits = verdicts.pop() if len(verdicts) == 1 else None
    first = None
    if fits is False:
        first = int(requests.event[np.flatnonzero(live > limits[0])[0]])
    kept = coded(np.linspace(0, max(stop - 1, 0), points).astype(int))[0] if stop else np.zeros(0, int)
    highest = np.maximum.reduceat(live, kept) if stop else live
    return WhatIfRun(
        alloc_conf=text,
        peak_reserved=peak,
        peak_allocated=peak,
        served=fits if failed else None,
        oom=None if fits is None else not fits,
        failed_at=first,
        certainty="estimate",
        smallest_limit=None,
        notes=("an estimate from live bytes: the driver's pool reserves up to about a fifth more",),
        curve_event=tuple(requests.event[kept].tolist()),
        curve_reserved=tuple(highest.tolist()),
    )
