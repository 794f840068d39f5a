"""Two runs compared at their moments: allocated bytes by stack, and what of each is new, gone, grown or shrunk."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.curves import reserved_curve
from oomctl.analysis.frames import fold, user_frames
from oomctl.analysis.holdings import event_at
from oomctl.analysis.lives import Lives, lives, round_size
from oomctl.analysis.matching import TextOf, lines_of, match_lines
from oomctl.analysis.moment import find_moment
from oomctl.model.alloc_conf import AllocConf, conf_from_recorded
from oomctl.model.diff import DiffRow
from oomctl.model.report import StackLine
from oomctl.model.snapshot import Action, DeviceSnapshot, Snapshot
from oomctl.model.stacks import Frame
from oomctl.units import format_size

MEASURES: Final = ("allocated", "active")

_NO_STACK: Final = Frame("", 0, "(recorded without a stack)")
_MANY_STACKS: Final = 50_000
"""Stacks of a snapshot that are read for matching; beyond, only those that hold bytes at the moment."""


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """One run at its moment.

    Attributes:
        snapshot: The file.
        device: The device.
        conf: Settings in force.
        blocks: Its blocks.
        size: int64[blocks], bytes that count: requests as rounded ("allocated"), or true sizes ("active").
        end: int64[blocks], trace index from which on a block no longer counts.
        event: Trace index of the moment, -1 without a trace.
        at: peak, oom or end.
        curve: int64[events], bytes that count after each event.
        reserved: int64[events].
        failed: The trace ends in a fatal failure.
    """

    snapshot: Snapshot
    device: DeviceSnapshot
    conf: AllocConf
    blocks: Lives
    size: NDArray[np.int64]
    end: NDArray[np.int64]
    event: int
    at: str
    curve: NDArray[np.int64]
    reserved: NDArray[np.int64]
    failed: bool

    @property
    def counting(self) -> NDArray[np.int64]:
        """int64[k]: rows of the blocks that count at the moment."""
        return np.flatnonzero((self.blocks.born <= self.event) & (self.end > self.event))

    @property
    def allocated(self) -> int:
        """Bytes at the moment."""
        return int(self.size[self.counting].sum())

    @property
    def reserved_now(self) -> int:
        """Reserved bytes at the moment."""
        return int(self.reserved[self.event]) if self.event >= 0 else int(self.device.segments.size.sum())

    @property
    def peak_allocated(self) -> int:
        """Highest bytes of the trace; those of the moment where there is none."""
        return int(self.curve.max()) if len(self.curve) else self.allocated

    @property
    def peak_reserved(self) -> int:
        """Highest reserved bytes of the trace."""
        return int(self.reserved.max()) if len(self.reserved) else int(self.device.segments.size.sum())

    @property
    def truncated(self) -> bool:
        """Blocks exist from before the first recorded event."""
        return self.device.trace is not None and bool((self.blocks.born < 0).any())


def state_at(snapshot: Snapshot, device: DeviceSnapshot, at: str = "peak", measure: str = "allocated") -> State:
    """One run at a moment.

    "allocated" does not depend on how the allocator laid the blocks out: two runs of the same requests have the same
    curve under any layout. It ends when the program frees, as `torch.cuda.max_memory_allocated` counts.

    Args:
        snapshot: The file.
        device: One of its devices.
        at: "peak" (of what is measured), "oom" or "end"; a snapshot without a trace has its end only.
        measure: "allocated" or "active".

    Raises:
        OomctlError: Nothing failed, and the failure was asked for.
    """
    conf = conf_from_recorded(snapshot.settings, snapshot.torch.high or (2, 11))
    blocks = lives(device, conf.roundup_power2_divisions)
    if measure == "active":
        size, end = blocks.size, blocks.died if device.trace is not None else np.zeros(len(blocks), np.int64)
    else:
        known = blocks.requested > 0
        size = np.where(known, round_size(blocks.requested, conf.roundup_power2_divisions), blocks.size)
        end = blocks.asked
    curve = _curve(blocks, size, end)
    if at == "peak" and len(curve):
        event, kind = int(curve.argmax()), "peak"
    else:
        event, kind = event_at(device, blocks, at)
    failed = device.trace is not None and find_moment(device, blocks).kind == "oom"
    return State(
        snapshot, device, conf, blocks, size.astype(np.int64), end, event, kind, curve, reserved_curve(device), failed
    )


def _curve(blocks: Lives, size: NDArray[np.int64], end: NDArray[np.int64]) -> NDArray[np.int64]:
    """int64[events]: bytes that count after each event."""
    n = blocks.events
    delta = np.zeros(n + 1, np.int64)
    start = np.maximum(blocks.born, 0)
    counts = end > blocks.born  # a block that was only waiting when the trace began never counts
    old = (blocks.born < 0) & counts
    np.add.at(delta, start[counts & ~old], size[counts & ~old])
    np.subtract.at(delta, end[counts], size[counts])
    return np.cumsum(delta[:n]) + int(size[old].sum())


@dataclass
class Place:
    """What one run holds at one place while rows are made.

    Attributes:
        bytes: Sum.
        blocks: Count, None unknown.
        frames: The user's frames, innermost first.
        stack: Folded stack of the largest part.
        largest: Bytes of that part.
        name: What it is where there is no frame.
    """

    bytes: int = 0
    blocks: int | None = 0
    frames: tuple[Frame, ...] = ()
    stack: tuple[StackLine, ...] = ()
    largest: int = -1
    name: str = ""

    def add(self, size: int, count: int, frames: tuple[Frame, ...], stack: tuple[StackLine, ...]) -> None:
        """Adds blocks."""
        self.bytes += size
        self.blocks = (self.blocks or 0) + count
        if size > self.largest:
            self.largest, self.frames, self.stack = size, frames, stack


Places = dict[Hashable, Place]


def places(
    state: State, by: str, user_roots: tuple[str, ...] = (), rename: Mapping[Frame, Frame] | None = None
) -> Places:
    """Bytes by place at the moment; they sum to `State.allocated`.

    Args:
        state: One run.
        by: "stack" (of the user's frames), "frame" (the innermost of them) or "size".
        user_roots: Path prefixes that are the user's.
        rename: Frames that stand for others in the keys.
    """
    rows = state.counting
    found: Places = {}
    if by == "size":
        sizes, counts = np.unique(state.size[rows], return_counts=True)
        for size, count in zip(sizes.tolist(), counts.tolist(), strict=True):
            found[size] = Place(size * count, count, name=f"blocks of {format_size(size)}")
        return found
    values, inverse, counts = np.unique(state.blocks.stack[rows], return_inverse=True, return_counts=True)
    sums = np.zeros(len(values), np.int64)
    np.add.at(sums, inverse, state.size[rows])
    rename = rename or {}
    for stack, count, size in zip(values.tolist(), counts.tolist(), sums.tolist(), strict=True):
        frames = tuple(user_frames(state.snapshot.stacks[stack], user_roots)) if stack >= 0 else ()
        named = tuple(rename.get(f, f) for f in (frames if by == "stack" else frames[:1]))
        place = found.setdefault(named, Place(name=_NO_STACK.name))
        place.add(size, count, frames, fold(state.snapshot.stacks[stack], user_roots) if frames else ())
    return found


def match(
    before: State,
    after: State,
    user_roots: tuple[str, ...] = (),
    texts: tuple[TextOf | None, TextOf | None] = (None, None),
) -> dict[Frame, Frame]:
    """Which frame of BEFORE is which of AFTER; frames without a partner stay out of AFTER's names.

    Args:
        before: One run.
        after: The other.
        user_roots: Path prefixes that are the user's.
        texts: Source texts of either, where they are at hand.
    """
    lines = []
    for state, text_of in zip((before, after), texts, strict=True):
        stacks = state.snapshot.stacks
        chosen: Sequence[int] = range(len(stacks))
        if len(stacks) > _MANY_STACKS:
            chosen = [s for s in np.unique(state.blocks.stack[state.counting]).tolist() if s >= 0]
        sizes = _sizes(state)
        numbered = {number: sizes.get(stack, set()) for number, stack in enumerate(chosen)}
        lines.append(lines_of((stacks[s] for s in chosen), numbered, user_roots, text_of))
    pairs = match_lines(lines[0], lines[1])
    # A line without a partner must not be taken for one that has the same number by chance.
    lost = {
        frame: Frame(frame.filename, frame.line, frame.name + "\0before") for frame in lines[0] if frame not in pairs
    }
    return {**pairs, **lost}


def _sizes(state: State) -> dict[int, set[int]]:
    """Stack -> sizes that it allocates anywhere in the trace."""
    known = state.blocks.stack >= 0
    pairs = np.unique(np.stack([state.blocks.stack[known].astype(np.int64), state.size[known]]), axis=1)
    found: dict[int, set[int]] = {}
    for stack, size in pairs.T.tolist():
        found.setdefault(stack, set()).add(size)
    return found


def join_calls(before: Places, after: Places) -> Places:
    """BEFORE's places under AFTER's keys where only callers differ: the innermost frame and half of all agree."""
    fresh: dict[Frame, list[tuple[Frame, ...]]] = {}
    for key in after:
        if isinstance(key, tuple) and key and key not in before:
            fresh.setdefault(key[0], []).append(key)
    joined: Places = {}
    taken: set[Hashable] = set()
    for key, place in sorted(before.items(), key=lambda item: -item[1].bytes):
        if key in after or not isinstance(key, tuple) or not key:
            joined[key] = place
            continue
        candidates = [k for k in fresh.get(key[0], ()) if k not in taken]
        best = max(candidates, key=lambda k: (_agreeing(key, k), -abs(after[k].bytes - place.bytes), k), default=None)
        if best is not None and 2 * _agreeing(key, best) >= max(len(key), len(best)):
            taken.add(best)
            joined[best] = place
        else:
            joined[key] = place
    return joined


def _agreeing(one: tuple[Frame, ...], other: tuple[Frame, ...]) -> int:
    """Frames that two stacks share from the inside and from the outside."""
    shortest = min(len(one), len(other))
    inner = 0
    while inner < shortest and one[inner] == other[inner]:
        inner += 1
    outer = 0
    while outer < shortest - inner and one[-1 - outer] == other[-1 - outer]:
        outer += 1
    return inner + outer


def difference(before: Places, after: Places) -> tuple[tuple[DiffRow, ...], int, int]:
    """Rows whose bytes or blocks changed, largest change first, and what stayed the same.

    Args:
        before: Bytes by place.
        after: Bytes by place, under the same keys.

    Returns:
        (rows, places that did not change, bytes that they hold); the rows' changes sum to the change of the sums.
    """
    rows = []
    same_rows = same_bytes = 0
    for key in {**before, **after}:
        one, other = before.get(key), after.get(key)
        old, new = (one.bytes if one else 0), (other.bytes if other else 0)
        if old == new:
            same_rows += 1
            same_bytes += new
            continue
        shown = other or one
        assert shown is not None
        first = shown.frames[0] if shown.frames else Frame("", 0, shown.name)
        was = one.frames[0].line if one is not None and one.frames and other is not None else first.line
        rows.append(
            DiffRow(
                status="new"
                if not one or not old
                else "gone"
                if not other or not new
                else "grown"
                if new > old
                else "shrunk",
                change=new - old,
                bytes_before=old,
                bytes_after=new,
                blocks_before=one.blocks if one else 0,
                blocks_after=other.blocks if other else 0,
                file=first.filename,
                line=first.line,
                function=first.name,
                line_before=was if was != first.line else None,
                stack=shown.stack,
            )
        )
    rows.sort(key=lambda row: (-abs(row.change), -row.change, row.file, row.line, row.function, row.bytes_before))
    return tuple(rows), same_rows, same_bytes


def step_marks(state: State, starts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(peaks, floors) of steps, bytes: int64[k] each.

    Args:
        state: One run with a trace.
        starts: int64[k], first event of each step.
    """
    peaks = np.maximum.reduceat(state.curve, starts)
    return peaks, state.curve[np.maximum(starts - 1, 0)]


def last_event(state: State) -> int:
    """Until where steps are looked for: the failure, else the end."""
    trace = state.device.trace
    if trace is None:
        return -1
    ooms = np.flatnonzero(trace.action == Action.OOM)
    return int(ooms[-1]) if state.failed and len(ooms) else len(trace) - 1
