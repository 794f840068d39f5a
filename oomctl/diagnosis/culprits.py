"""Whose frames own the bytes that the verdict is about."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.frames import fold, label, user_frames
from oomctl.analysis.incident import Incident
from oomctl.analysis.phases import LOAD, phases
from oomctl.diagnosis.peak import step_shape
from oomctl.model.report import Culprit
from oomctl.model.snapshot import Action
from oomctl.model.stacks import NO_STACK, Frame
from oomctl.units import format_size

OWNS: Final = 0.8
"""The accumulation point is the deepest caller that owns at least this part of the bytes."""

_ANEW: Final = 0.01
"""Part of a step's bytes from which on it is said that they replace what it freed."""

MOST: Final = 12
"""Culprits in a report; the rest is one sum."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """Culprits, largest first, and what the list leaves out.

    Attributes:
        culprits: At most `MOST`, and the accumulation point where it is a caller of them.
        rest_bytes: Bytes of all other frames.
        rest_blocks: Blocks of all other frames.
        basis: What was ranked, in words.
        owner: int64[len(lives)]: rank of the row that owns each block, 0 for none.
    """

    culprits: tuple[Culprit, ...]
    rest_bytes: int
    rest_blocks: int
    basis: str
    owner: NDArray[np.int64]


def rank(incident: Incident, cls: str, subtype: str | None) -> Ranking:
    """Ranks the frames that own what the verdict is about.

    Args:
        incident: The incident.
        cls: Verdict class.
        subtype: Verdict subtype.
    """
    weight, role, basis = _weights(incident, cls, subtype)
    lives, stacks = incident.lives, incident.snapshot.stacks
    by_stack: dict[int, list[int]] = {}
    chosen = np.flatnonzero(weight > 0)
    order = np.argsort(lives.stack[chosen], kind="stable")
    chosen = chosen[order]
    sorted_stacks = lives.stack[chosen]
    begin = np.flatnonzero(np.append(True, sorted_stacks[1:] != sorted_stacks[:-1])[: len(chosen)])
    values, ends = sorted_stacks[begin], np.append(begin, len(chosen))[1:]
    for stack, b, e in zip(values.tolist(), begin.tolist(), ends.tolist(), strict=True):
        by_stack[stack] = [int(weight[chosen[b:e]].sum()), e - b]
    if cls == "fragmentation" and subtype == "private_pools":
        for stack, size in _idle_segments(incident):
            entry = by_stack.setdefault(stack, [0, 0])
            entry[0] += size
            entry[1] += 1
    trace, request = incident.device.trace, incident.request
    asked = NO_STACK
    if incident.failed and trace is not None and request is not None and request.size is not None:
        asked = int(trace.stack[incident.moment.event])
        if cls in ("transient_peak", "capacity") and asked != NO_STACK:
            entry = by_stack.setdefault(asked, [0, 0])
            entry[0] += request.size
            entry[1] += 1
            basis += ", and the request"
    return _rows(incident, by_stack, asked, role, basis, stacks_known=len(stacks) > 0)


def _weights(incident: Incident, cls: str, subtype: str | None) -> tuple[NDArray[np.int64], str, str]:
    """(bytes of each block that count, role, what is ranked)."""
    lives, heap = incident.lives, incident.heap
    weight = np.zeros(len(lives), np.int64)
    if cls == "leak":
        groups = incident.growth.groups[incident.growth.growing]
        signature = lives.requested if incident.growth_by_size else lives.stack.astype(np.int64)
        mine = np.isin(signature, groups)
        weight[heap.live] = np.where(mine[heap.live], heap.live_size, 0)
        return weight, "leaked", "live bytes at the failure in the places that grow"
    if cls == "transient_peak":
        if len(incident.grid) >= 3:
            recent = lives.born[heap.live] >= incident.step_start
        else:
            recent = phases(incident.snapshot.stacks)[lives.stack[heap.live]] != LOAD
        weight[heap.live] = np.where(recent, heap.live_size, 0)
        return weight, "peak", _made(incident, int(weight.sum()))
    if cls == "fragmentation" and subtype == "rounding":
        requested = np.minimum(lives.requested[heap.live], heap.live_size)
        weight[heap.live] = heap.live_size - requested
        return weight, "held", "bytes lost to rounding"
    if cls == "fragmentation":
        live_in = heap.live_bytes_by_segment()
        idle_in = np.bincount(heap.hole_segment, heap.hole_size, len(heap.size))
        # A block answers for its segment's idle memory in proportion to its part of the segment's live bytes.
        part = heap.live_size / np.maximum(live_in[heap.live_segment], 1)
        if subtype == "private_pools":
            part = np.where(heap.pool[heap.live_segment] > 0, part, 0.0)
        weight[heap.live] = np.rint(part * idle_in[heap.live_segment]).astype(np.int64)
        return weight, "pinning", "idle bytes held down by live blocks in the same segment"
    weight[heap.live] = heap.live_size
    if incident.device.trace is None:
        return weight, "held", "live bytes of the snapshot's segments"
    if not incident.failed:
        return weight, "held", "live bytes at the peak"
    return weight, "held", "live bytes at the failure"


def _made(incident: Incident, made: int) -> str:
    """What the rows of a peak are, and why they sum to more than the step stands above its floor.

    Args:
        incident: The incident.
        made: Live bytes that the step made.
    """
    if len(incident.grid) < 3:
        return "live bytes beside what was loaded"
    # Of what was live when the step began it has freed this much, and made as much anew.
    above = incident.heap.active - step_shape(incident).floor
    basis = "live bytes made in the step of the failure"
    if above <= 0 or made - above < _ANEW * made:
        return basis
    return f"{basis} ({format_size(made - above)} of them in place of what it freed)"


def _idle_segments(incident: Incident) -> list[tuple[int, int]]:
    """(stack that made it, bytes) of each segment that a flush left behind although nothing in it is live."""
    heap, device = incident.heap, incident.device
    whole = np.flatnonzero(heap.live_bytes_by_segment() == 0)
    made = dict(zip(device.segments.address.tolist(), device.segments.stack.tolist(), strict=True))
    trace = device.trace
    if trace is not None:
        rows = np.flatnonzero(trace.action[: incident.moment.event + 1] == Action.SEGMENT_ALLOC)
        made.update(zip(trace.address[rows].tolist(), trace.stack[rows].tolist(), strict=True))
    return [(made.get(int(heap.address[s]), NO_STACK), int(heap.size[s])) for s in whole.tolist()]


def _rows(
    incident: Incident, by_stack: dict[int, list[int]], asked: int, role: str, basis: str, *, stacks_known: bool
) -> Ranking:
    stacks, roots = incident.snapshot.stacks, incident.user_roots
    owner = np.zeros(len(incident.lives), np.int64)
    total = sum(size for size, _ in by_stack.values())
    if not stacks_known or not total:
        return Ranking((), total, sum(n for _, n in by_stack.values()), basis, owner)
    users = {stack: user_frames(stacks[stack], roots) for stack in by_stack if stack != NO_STACK}
    rows: dict[Frame, list[int]] = {}
    largest: dict[Frame, tuple[int, int]] = {}
    for stack, frames in users.items():
        size, count = by_stack[stack]
        if not frames:
            continue
        row = rows.setdefault(frames[0], [0, 0])
        row[0] += size
        row[1] += count
        largest[frames[0]] = max(largest.get(frames[0], (-1, -1)), (size, stack))
    ordered = sorted(rows, key=lambda f: (-rows[f][0], f))
    point = _accumulation(users, by_stack, total)
    listed = ordered[:MOST]
    extra: list[Frame] = []
    if point is not None and point not in listed:
        extra = [point]
    requester = users[asked][0] if users.get(asked) else None
    culprits: list[Culprit] = []
    place = 0 if role == "leaked" else 2
    sequence: list[tuple[Frame, bool]] = [(f, False) for f in listed]
    for frame in extra:
        sequence.insert(min(place, len(sequence)), (frame, True))
    rank_of: dict[Frame, int] = {}
    for number, (frame, caller) in enumerate(sequence, 1):
        if caller:
            held = [(s, by_stack[s]) for s, frames in users.items() if frame in frames]
            size, count = sum(v[0] for _, v in held), sum(v[1] for _, v in held)
            stack = max(held, key=lambda item: item[1][0])[0]
        else:
            size, count = rows[frame]
            stack = largest[frame][1]
            rank_of[frame] = number
        culprits.append(
            Culprit(
                rank=number,
                file=frame.filename,
                line=frame.line,
                function=frame.name,
                bytes=size,
                blocks=count,
                share=size / total,
                role=role,
                accumulation_point=frame == point,
                stack=fold(stacks[stack], roots),
                caller=caller,
            )
        )
    if requester is not None and incident.failed and role == "pinning" and all(_site(c) != requester for c in culprits):
        size = incident.request.size if incident.request is not None and incident.request.size is not None else 0
        culprits.insert(
            min(2, len(culprits)),
            Culprit(0, requester.filename, requester.line, requester.name, size, 1, 0.0, "requested", False,
                    fold(stacks[asked], roots)),
        )  # fmt: skip
        culprits = [replace(c, rank=i) for i, c in enumerate(culprits, 1)]
        rank_of = {_site(c): c.rank for c in culprits}
    listed_bytes = sum(rows[f][0] for f in listed)
    listed_blocks = sum(rows[f][1] for f in listed)
    by_number = {stack: rank_of.get(frames[0], 0) for stack, frames in users.items() if frames}
    table = np.zeros(len(stacks) + 1, np.int64)
    for stack, number in by_number.items():
        table[stack] = number
    owner = table[incident.lives.stack]
    blocks = sum(n for _, n in by_stack.values())
    return Ranking(tuple(culprits), total - listed_bytes, blocks - listed_blocks, basis, owner)


def _site(c: Culprit) -> Frame:
    return Frame(c.file, c.line, c.function)


def _accumulation(users: dict[int, list[Frame]], by_stack: dict[int, list[int]], total: int) -> Frame | None:
    """The deepest frame that owns at least `OWNS` of the bytes, found from the outermost caller inwards."""
    remaining = {stack: frames[::-1] for stack, frames in users.items() if frames}
    best: Frame | None = None
    depth = 0
    while remaining:
        weight: dict[Frame, int] = {}
        for stack, frames in remaining.items():
            if depth < len(frames):
                weight[frames[depth]] = weight.get(frames[depth], 0) + by_stack[stack][0]
        if not weight:
            break
        frame = max(weight, key=lambda f: weight[f])
        if weight[frame] < OWNS * total:
            break
        best = frame
        remaining = {s: f for s, f in remaining.items() if depth < len(f) and f[depth] == frame}
        depth += 1
    return best


def owners_label(culprit: Culprit) -> str:
    """Label of a culprit's row for bands and pieces."""
    return label(_site(culprit))
