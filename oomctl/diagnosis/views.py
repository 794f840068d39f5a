"""Parts of a report that pictures are made of: timeline, segment map, holes, steps; thinned here, once."""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.books import of_request
from oomctl.analysis.curves import sum_curve
from oomctl.analysis.incident import Incident
from oomctl.diagnosis.culprits import Ranking, owners_label
from oomctl.model.report import (
    Band,
    HoleBucket,
    Holes,
    Mark,
    Piece,
    SegmentBar,
    SegmentMap,
    StepRow,
    Steps,
    Timeline,
)
from oomctl.units import MIB

POINTS: Final = 600
"""Points of a timeline; the highest and lowest of each interval are kept."""

BANDS: Final = 6
SEGMENTS: Final = 160
PIECES: Final = 120
STEP_ROWS: Final = 400


def timeline(incident: Incident, ranking: Ranking) -> Timeline | None:
    """Live and reserved bytes over the trace, live ones split by the first culprits."""
    trace, active = incident.device.trace, incident.active
    if trace is None or not len(active):
        return None
    points = _points(active, incident.moment.event)
    bands = []
    owners = [c for c in ranking.culprits if bool((ranking.owner == c.rank).any())][:BANDS]
    rest = active[points].copy()
    for c in owners:
        values = sum_curve(incident.lives, ranking.owner == c.rank)[points]
        rest -= values
        bands.append(Band(owners_label(c), c.rank, tuple(values.tolist())))
    bands.append(Band("everything else" if owners else "in use", 0, tuple(rest.tolist())))
    times = trace.time_us

    def mark(event: int, text: str, kind: str) -> Mark:
        at = min(max(event, 0), len(active) - 1)
        return Mark(event, text, int(times[at]) if times is not None else None, kind)

    grid = incident.grid
    every = max(len(grid) // 200, 1)
    steps = tuple(
        mark(int(e), grid.labels[i] if grid.labels else f"step {i}", "step")
        for i, e in enumerate(grid.starts.tolist())
        if i % every == 0
    )
    ooms = [mark(e, "recovered", "recovered") for e in incident.moment.recovered[:50]]
    if incident.failed:
        ooms.append(mark(incident.moment.event, "out of memory", "fatal"))
    return Timeline(
        event=tuple(points.tolist()),
        time_us=tuple(times[points].tolist()) if times is not None else None,
        active=tuple(active[points].tolist()),
        reserved=tuple(incident.reserved[points].tolist()),
        bands=tuple(bands),
        steps=steps,
        ooms=tuple(ooms),
        moment=incident.moment.event,
        limit=incident.budget.limit,
        events_total=len(active),
        thinned=len(points) < len(active),
    )


def _points(curve: NDArray[np.int64], moment: int) -> NDArray[np.int64]:
    """Indices to keep: the highest and lowest point of each of equal intervals, both ends and the moment."""
    n = len(curve)
    if n <= POINTS:
        return np.arange(n)
    edges = np.linspace(0, n, POINTS // 2 + 1, dtype=np.int64)
    keep = {0, n - 1, min(max(moment, 0), n - 1)}
    for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if b > a:
            keep.add(a + int(curve[a:b].argmax()))
            keep.add(a + int(curve[a:b].argmin()))
    return np.array(sorted(keep), np.int64)


def holes(incident: Incident) -> Holes | None:
    """Free blocks that the request could have used by pool and stream, by size."""
    heap, request = incident.heap, incident.request
    segment = heap.hole_segment
    usable = (heap.pool[segment] == 0) & of_request(heap, request)
    need = request.size if request is not None else None
    sizes = heap.hole_size[usable]
    if not len(sizes):
        return None
    edges = [0, *(1 << k for k in range(20, 48))]
    buckets = []
    for low, high in itertools.pairwise(edges):
        inside = sizes[(sizes >= low) & (sizes < high)]
        if len(inside):
            fits = need is not None and int(inside.max()) >= need
            buckets.append(HoleBucket(low, high, len(inside), int(inside.sum()), fits))
    return Holes(need, int(sizes.max()), len(sizes), int(sizes.sum()), tuple(buckets))


def segment_map(incident: Incident, ranking: Ranking) -> SegmentMap | None:
    """Segments at the moment, most idle first, each as runs of live and idle memory."""
    heap = incident.heap
    if not len(heap.size):
        return None
    live_in = heap.live_bytes_by_segment()
    order = np.argsort(-(heap.size - live_in), kind="stable")
    shown, dropped = order[:SEGMENTS], order[SEGMENTS:]
    names = {c.rank: owners_label(c) for c in ranking.culprits}
    first_live = np.searchsorted(heap.live_segment, np.arange(len(heap.size) + 1))
    bars = []
    for s in shown.tolist():
        bars.append(
            SegmentBar(
                address=int(heap.address[s]),
                size=int(heap.size[s]),
                kind="large" if heap.is_large[s] else "small",
                expandable=bool(heap.is_expandable[s]),
                stream=int(heap.stream[s]),
                pool_id=incident.device.pools[int(heap.pool[s])],
                live=int(live_in[s]),
                pieces=_pieces(incident, ranking, names, s, int(first_live[s]), int(first_live[s + 1])),
            )
        )
    return SegmentMap(tuple(bars), len(dropped), int(heap.size[dropped].sum()))


def _pieces(
    incident: Incident, ranking: Ranking, names: dict[int, str], s: int, begin: int, end: int
) -> tuple[Piece, ...]:
    heap, request = incident.heap, incident.request
    start, size = int(heap.address[s]), int(heap.size[s])
    idle = "idle"
    if heap.pool[s] > 0:
        idle = "idle_private_pool"
    elif (
        request is not None
        and request.size is not None
        and (int(heap.stream[s]) != (request.stream or 0) or bool(heap.is_large[s]) != (request.pool == "large"))
    ):
        idle = "idle_other_stream"
    runs: list[tuple[int, str, int]] = []
    cursor = start
    addresses = incident.lives.address[heap.live[begin:end]].tolist()
    owners = ranking.owner[heap.live[begin:end]].tolist()
    for k, (a, owner) in enumerate(zip(addresses, owners, strict=True), begin):
        if a > cursor:
            runs.append((a - cursor, idle, 0))
        length = int(heap.live_size[k])
        state = "pending" if heap.live_pending[k] else "live"
        if runs and runs[-1][1] == state and runs[-1][2] == owner:
            runs[-1] = (runs[-1][0] + length, state, owner)
        else:
            runs.append((length, state, owner))
        cursor = a + length
    if cursor < start + size:
        runs.append((start + size - cursor, idle, 0))
    if len(runs) <= PIECES:
        return tuple(
            Piece(n, state, owner, names.get(owner, ""), n if state == "live" else 0) for n, state, owner in runs
        )
    # Too many to draw: equal stretches, each with its share of live bytes.
    width = -(-size // PIECES)
    live = [0] * PIECES
    position = 0
    for n, state, _ in runs:
        if state != "idle" and not state.startswith("idle"):
            a, b = position, position + n
            while a < b:
                slot = a // width
                take = min(b, (slot + 1) * width) - a
                live[slot] += take
                a += take
        position += n
    return tuple(
        Piece(min(width, size - i * width), "mixed", 0, "", live[i]) for i in range(PIECES) if size - i * width > 0
    )


def steps(incident: Incident) -> Steps | None:
    """The steps with their floor and peak."""
    grid, active = incident.grid, incident.active
    if not len(grid) or not len(active):
        return None
    starts = grid.starts
    ends = np.append(starts[1:], len(active) if not incident.failed else incident.moment.event + 1)
    every = max(-(-len(grid) // STEP_ROWS), 1)
    floors = active[np.maximum(starts - 1, 0)]
    settled = _settled(floors)
    rows = tuple(
        StepRow(
            index=i,
            label=grid.labels[i] if grid.labels else f"step {i}",
            first_event=int(starts[i]),
            last_event=int(ends[i]),
            floor=int(floors[i]),
            peak=int(active[starts[i] : max(ends[i], starts[i] + 1)].max()),
            warmup=i < settled,
        )
        for i in range(0, len(grid), every)
    )
    growing = bool(incident.growth.growing.any())
    per_step = incident.growth.per_step if growing else None
    to_oom = None
    if per_step and per_step > 0 and incident.budget.limit is not None and incident.failed:
        # From the floor of the first step to the limit, at this rate.
        room = incident.budget.limit - int(floors[0])
        to_oom = max(room // per_step, 0)
    return Steps(grid.source, grid.name, rows, len(grid), per_step, to_oom)


def _settled(floors: NDArray[np.int64]) -> int:
    """Steps at the beginning after which the floor no longer jumps by more than MiBs for good (warm-up)."""
    rise = np.diff(floors)
    if not len(rise):
        return 0
    usual = max(int(np.median(np.abs(rise))), MIB)
    jumps = np.flatnonzero(rise > 8 * usual)
    early = jumps[jumps < max(len(floors) // 4, 2)]
    return int(early[-1]) + 1 if len(early) else 0
