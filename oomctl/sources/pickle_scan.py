"""Walks a pickle's opcodes before any object is built, at many places at once with numpy.

A memory snapshot needs 28 of pickle's 68 opcodes: containers, numbers, strings, the memo. Everything that names,
calls or builds something else is found here, before Python's own decoder sees a byte of it. So is what makes
that decoder slow or large without running code: memo indices out of nowhere, numbers of a million digits,
tuples of tuples (hashing those as a key takes forever), and more objects than a file of that size can hold.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.units import MIB

STOP, FRAME, LONG1, SHORT_STR, LONG_STR, BINPUT, LONG_BINPUT = b".\x95\x8a\x8cXqr"
_FIXED: Final = (
    (1, b"(N\x88\x89]})aesu\x85\x86\x87\x94"),
    (2, b"\x80Khq\x8a\x8c"),
    (3, b"M"),
    (5, b"JjrX"),
    (9, b"G\x95"),
)
"""Bytes that the allowed opcodes take before a string's or long number's own. STOP is not one: it ends the walk."""
_NUMBERS: Final = b"KMJ\x8aGN\x88\x89"
_TUPLES: Final = b"\x85\x86\x87"
MAX_INT_BYTES: Final = 9
"""Of one integer: 2^64 - 1 takes nine. Longer ones could be chosen to collide as dict keys."""
_COSTS: Final = (
    (b"}", 64), (b"us", 200), (b"]", 88), (_TUPLES, 72), (b"JM\x8a", 42), (b"G", 34), (b"\x8cX", 66), (b"\x94qr", 12),
    (b"NKhj\x88\x89)", 10), (b"(", 8),
)  # fmt: skip
"""Bytes that each opcode makes the decoder take, its place in a list, a dict or the memo included."""
MEMORY_FACTOR: Final = 24
"""Bytes of objects for each byte of file that are believed: about twice what real snapshots are estimated at."""
MEMORY_FLOOR: Final = 64 * MIB

_LENGTH: Final = np.zeros(256, np.int64)
_COST: Final = np.zeros(256, np.int64)
for _size, _codes in _FIXED:
    _LENGTH[list(_codes)] = _size
for _codes, _size in _COSTS:
    _COST[list(_codes)] = _size
_VARIABLE: Final = np.zeros(256, np.bool_)
_VARIABLE[[LONG1, SHORT_STR, LONG_STR, LONG_BINPUT]] = True
_IS_NUMBER: Final = np.zeros(256, np.bool_)
_IS_NUMBER[list(_NUMBERS)] = True
_ROWS: Final = 64
"""Opcodes that every cursor walks between two looks at which are done."""
_HISTORY: Final = 4
"""Opcodes before a tuple that say what is in it: three items and a FRAME."""
_FEW: Final = 64
"""Cursors for which numpy's overhead is more than a plain loop takes."""
_SLACK: Final = 256
"""Memo indices that a pickler may be ahead of the count of its PUTs."""
_SMALL: Final = 64 << 10
"""Bytes under which one plain loop is faster than many cursors."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What a pickle consists of.

    Attributes:
        end: Offset behind the last opcode that is whole and allowed; behind STOP if it came to that.
        reason: "" for a pickle that ends in STOP; truncated, opcode, number, memo, tuple or memory.
        memory: Estimate of its objects' size, bytes.
        frames: Offsets of all FRAME opcodes; None where they are not known.
        batches: Offsets behind an APPENDS that ends a batch of dicts and is followed by another batch.
    """

    end: int
    reason: str
    memory: int
    frames: tuple[int, ...] | None = None
    batches: tuple[int, ...] = ()


@dataclass(slots=True)
class _Tally:
    """What cursors met on the way; `frames` only from the plain walk."""

    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(256, np.int64))
    largest_put: int = -1
    frames: list[int] = field(default_factory=list)

    @property
    def puts(self) -> int:
        """Opcodes that put something into the memo at a given index."""
        return int(self.counts[[BINPUT, LONG_BINPUT]].sum())

    def judged(self, size: int, walk: Walk) -> Walk:
        """The walk, or why it must not be decoded although its opcodes are allowed."""
        memory = int((self.counts * _COST).sum()) + size
        reason = walk.reason
        if memory > MEMORY_FLOOR + MEMORY_FACTOR * size:
            reason = "memory"
        return Walk(walk.end, reason, memory, walk.frames, walk.batches)


def walk(data: bytes) -> Walk:
    """Walks a whole pickle.

    Args:
        data: Starts with PROTO.

    Returns:
        Where it ends and why, and what it would build. Unless the reason is memory, ``data[:end]`` may be given to
        a decoder.
    """
    size = len(data)
    chain = _frame_chain(data)
    batches = {m.end() - 1 for m in re.finditer(rb"ue\(", data)}
    starts = sorted({0, *chain, *batches, *_spread(data)})
    if _SMALL <= size < len(starts) * _SMALL:
        tally = _Tally()
        stops = _walk_abreast(data, starts, tally)
        if any(stop > after for stop, after in zip(stops, starts[1:], strict=False)):
            starts = _without_false_starts(data, starts, stops)
            tally = _Tally()
            stops = _walk_abreast(data, starts, tally)
        wrong = next((i for i, stop in enumerate(stops) if i + 1 == len(starts) or stop != starts[i + 1]), 0)
        if wrong + 1 == len(starts) and stops[wrong] >= 0:
            end, reason = _walk_plainly(data, starts[wrong], _Tally())
        else:
            # What is wrong is in the middle: count what is before it only, and find it one opcode at a time.
            wrong = max(0, wrong - (stops[wrong] < 0))
            tally = _Tally()
            if wrong:
                _walk_abreast(data[: starts[wrong]], starts[:wrong], tally)
            end, reason = _walk_plainly(data, starts[wrong], tally)
        if tally.largest_put <= tally.puts + _SLACK:
            known = set(starts[: wrong + 1])
            before = [f for f in chain if f < end]
            frames = tuple(before) if known.issuperset(before) and len(before) == tally.counts[FRAME] else None
            whole = () if frames is None else tuple(sorted(batches & known))
            return tally.judged(size, Walk(end, reason, 0, frames, whole))
    tally = _Tally()
    end, reason = _walk_plainly(data, 0, tally)
    return tally.judged(size, Walk(end, reason, 0, tuple(tally.frames)))


def _without_false_starts(data: bytes, starts: list[int], stops: list[int]) -> list[int]:
    """The starts that a walk from the first one comes to; the others lie inside strings or numbers."""
    sound, index = [], 0
    places = {start: i for i, start in enumerate(starts)}
    while index < len(starts):
        sound.append(starts[index])
        at = stops[index]
        if index + 1 < len(starts) and at > starts[index + 1]:
            at, _ = _walk_plainly(data, at, _Tally(), places)
        index = places.get(at, len(starts))
    return sound


def _frame_chain(data: bytes) -> list[int]:
    """Where FRAMEs are if each begins where the one before it ends, as all of Python's picklers write them."""
    at, chain = 2, []
    while data[at : at + 1] == b"\x95":
        chain.append(at)
        at += 9 + int.from_bytes(data[at + 1 : at + 9], "little")
    return chain


def _spread(data: bytes) -> list[int]:
    """Places all over the data that look like the start of a dict; the walk finds out whether they are."""
    pattern = rb"\}\x94\(" if data[1] >= 4 else rb"\}(?:q.|r.{4})?\((?=[Xhjq])"
    search = re.compile(pattern, re.DOTALL).search
    step = max(2048, len(data) // 8192)
    places, at = [], step
    while (match := search(data, at)) is not None:
        places.append(match.start())
        at = max(match.end(), at + step)
    return places


def _walk_abreast(data: bytes, places: list[int], tally: _Tally) -> list[int]:
    """Walks from every start to the next one (the last: to the end), all in step.

    Returns:
        Where each cursor came to: its end, behind its end, at an opcode that it cannot pass, or -1 where a tuple
        is not to be trusted.
    """
    octets = np.frombuffer(data, np.uint8)
    starts = np.array(places, np.int64)
    stops = np.full(len(starts), -1, np.int64)
    which = np.arange(len(starts))
    pos = starts.copy()
    end = np.append(starts[1:], len(data))
    # What comes before a start is seen by the cursor that ends there: believed here, checked below.
    past = np.full((_HISTORY, len(starts)), _NUMBERS[0], np.uint8)
    first = np.zeros((_HISTORY, len(starts)), np.uint8)
    last = np.zeros((_HISTORY, len(starts)), np.uint8)
    rows = np.empty((_HISTORY + _ROWS, len(starts)), np.uint8)
    begun = False
    while len(which) >= _FEW:
        rows = rows[:, : len(which)] if len(which) != rows.shape[1] else rows
        rows[:_HISTORY] = past
        for row in rows[_HISTORY:]:
            octets.take(pos, mode="clip", out=row)
            row[pos >= end] = 0  # no opcode, so it stays where it is
            step = _LENGTH.take(row)
            special = _VARIABLE.take(row).nonzero()[0]
            if len(special):
                _measure(octets, pos, row, step, special, tally)
            pos += step
        tally.counts += np.bincount(rows[_HISTORY:].ravel(), minlength=256)
        distrusted = _tuples_of_more_than_numbers(rows)
        stuck = (step == 0) | distrusted
        done = stuck.nonzero()[0]
        if not begun:
            begun = True
            first[:] = rows[_HISTORY : 2 * _HISTORY]
            rows[:_HISTORY] = 0
        if len(done):
            stops[which[done]] = np.where(distrusted[done], -1, pos[done])
            walked = (rows[_HISTORY:, done] != 0).sum(axis=0)
            last[:, which[done]] = rows[walked + np.arange(_HISTORY)[:, None], done]
            keep = ~stuck
            which, pos, end = which[keep], pos[keep], end[keep]
            past = rows[-_HISTORY:, keep]
        else:
            past = rows[-_HISTORY:].copy()
    history = (past if begun else np.zeros_like(past)).T.tolist()
    for i, at, limit, before in zip(which.tolist(), pos.tolist(), end.tolist(), history, strict=True):
        codes = [code for code in before if code != FRAME]
        numbers = next((n for n, code in enumerate(reversed(codes)) if code not in _NUMBERS), len(codes))
        stop, reason = _walk_plainly(data, at, tally, limit=limit, numbers=numbers)
        stops[i] = stop - (reason == "") if reason != "tuple" else -1
    seams = _tuples_of_more_than_numbers(np.concatenate((last[:, :-1], first[:, 1:])))
    stops[1:][seams] = -1
    result: list[int] = stops.tolist()
    return result


def _measure(
    octets: NDArray[np.uint8],
    pos: NDArray[np.int64],
    row: NDArray[np.uint8],
    step: NDArray[np.int64],
    special: NDArray[np.int64],
    tally: _Tally,
) -> None:
    """Adds to `step` the bytes of strings and long numbers; 0 where the opcode must not be passed."""
    codes = row[special]
    at = pos[special]
    more = octets.take(at + 1, mode="clip").astype(np.int64)
    wide = ((codes == LONG_STR) | (codes == LONG_BINPUT)).nonzero()[0]
    if len(wide):
        for i in (1, 2, 3):
            more[wide] |= octets.take(at[wide] + 1 + i, mode="clip").astype(np.int64) << (8 * i)
        puts = codes == LONG_BINPUT
        if puts.any():
            tally.largest_put = max(tally.largest_put, int(more[puts].max()))
            more[puts] = 0
    step[special] += more
    step[special[(codes == LONG1) & (more > MAX_INT_BYTES)]] = 0


def _tuples_of_more_than_numbers(rows: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Columns in which a tuple is made of anything but the numbers right before it (a FRAME may lie between)."""
    result = np.zeros(rows.shape[1], np.bool_)
    is_tuple = (rows >= _TUPLES[0]) & (rows <= _TUPLES[-1])
    is_tuple[:_HISTORY] = False
    at, column = is_tuple.nonzero()
    if len(at):
        wanted = rows[at, column].astype(np.int64) - (_TUPLES[0] - 1)
        found = np.zeros(len(at), np.int64)
        unbroken = np.ones(len(at), np.bool_)
        for back in range(1, _HISTORY + 1):
            code = rows[at - back, column]
            unbroken &= _IS_NUMBER.take(code) | (code == FRAME)
            found += unbroken & (code != FRAME)
        result[column[found < wanted]] = True
    return result


def _walk_plainly(
    data: bytes,
    start: int,
    tally: _Tally,
    until: Container[int] = (),
    limit: int | None = None,
    numbers: int = 0,
) -> tuple[int, str]:
    """Walks opcode by opcode from one place; the reference for the many cursors.

    Args:
        data: The pickle.
        start: Where an opcode begins.
        tally: Counts what is met.
        until: Places to stop at; tuples are then passed whatever is in them.
        limit: Where to stop if not at the end.
        numbers: Numbers right before the start.

    Returns:
        Offset behind the last good opcode, and the reason of `Walk`.
    """
    length = _LENGTH.tolist()
    counts = [0] * 256
    size, at, reason, puts = len(data), start, "truncated", _SLACK
    while at < (size if limit is None else limit) and at not in until:
        code = data[at]
        step = length[code]
        if code == SHORT_STR:
            step += data[at + 1] if at + 1 < size else 1
        elif code == LONG1:
            step += data[at + 1] if at + 1 < size else 1
            if step > 2 + MAX_INT_BYTES:
                reason = "number"
                break
        elif code == LONG_STR:
            step += int.from_bytes(data[at + 1 : at + 5], "little")
        elif code == LONG_BINPUT:
            index = int.from_bytes(data[at + 1 : at + 5], "little")
            if start == 0 and index > puts:
                reason = "memo"
                break
            tally.largest_put = max(tally.largest_put, index)
            puts += 1
        elif code == BINPUT:
            puts += 1
        elif code in _TUPLES and numbers < code - _TUPLES[0] + 1 and not until:
            reason = "tuple"
            break
        elif not step:
            if code == STOP:
                at, reason = at + 1, ""
            else:
                reason = "opcode"
            break
        if at + step > size:
            break
        counts[code] += 1
        if code == FRAME:
            tally.frames.append(at)
        else:
            numbers = numbers + 1 if code in _NUMBERS else 0
        at += step
    tally.counts += np.array(counts, np.int64)
    return at, reason
