"""Whether a snapshot agrees with itself; a real allocator's always does.

What disagrees is either left out with a `Skipped` whose `what` is one of the slugs here, or, where nothing
would be left to trust, refused.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.errors import OomctlError
from oomctl.model.common import Skipped
from oomctl.model.snapshot import Action, Blocks, BlockState, DeviceSnapshot, Segments, Trace
from oomctl.units import format_size

SEGMENTS_OVERLAP: Final = "segments-overlap"
BLOCKS_DO_NOT_TILE: Final = "blocks-do-not-tile-segments"
SIZES_ABSURD: Final = "sizes-absurd"
TRACE_CONTRADICTS_SEGMENTS: Final = "trace-contradicts-segments"
TIME_RUNS_BACKWARDS: Final = "time-runs-backwards"

MAX_DEVICE: Final = 1 << 44
"""Bytes of segments that no device has (16 TiB)."""
_TOLERATED: Final = 0.02
"""Share of a trace's final blocks that other threads may have changed between the copies of trace and segments."""
_REFUSED: Final = 0.5
"""Share from which trace and segments are of two different stories."""
_HINT: Final = "it was edited, damaged or made up; dump it again"


def checked(device: DeviceSnapshot) -> tuple[DeviceSnapshot, tuple[Skipped, ...]]:
    """A device's data without what contradicts the rest.

    Args:
        device: As read.

    Returns:
        The device without impossible segments, its trace moved to `partial_trace` where the segments say otherwise;
        and what was found.

    Raises:
        OomctlError: Most segments are impossible, or the trace contradicts all of them.
    """
    device, left_out = _possible_segments(device)
    found = list(left_out)
    trace = device.trace
    if trace is None:
        return device, tuple(found)
    found += _check_time(device.index, trace)
    wrong, looked_at = _ends_differently(device, trace)
    if not left_out and wrong > max(1.0, _REFUSED * looked_at):
        raise OomctlError(
            f"contradicts itself: by its trace {wrong} of {looked_at} addresses of device {device.index} end "
            "otherwise than its segments say",
            _HINT,
        )
    if wrong > 2 and wrong > _TOLERATED * looked_at:
        found.append(
            Skipped(
                TRACE_CONTRADICTS_SEGMENTS,
                f"{wrong} of the {looked_at} addresses in the trace of device {device.index} end otherwise than its "
                "segments say, so only the segments are used",
                "dump the snapshot again, with no other thread allocating meanwhile",
            )
        )
        device = replace(device, trace=None, partial_trace=trace)
    return device, tuple(found)


def _possible_segments(device: DeviceSnapshot) -> tuple[DeviceSnapshot, tuple[Skipped, ...]]:
    segments, blocks = device.segments, device.blocks
    if not len(segments):
        return device, ()
    owner = np.repeat(np.arange(len(segments)), np.diff(segments.first_block))
    block_end = blocks.address + blocks.size.astype(np.uint64)
    end = segments.address + segments.size.astype(np.uint64)
    absurd = (segments.size <= 0) | (end < segments.address)
    absurd[owner[(blocks.size <= 0) | (blocks.requested > blocks.size)]] = True
    untiled = np.diff(segments.first_block) == 0
    first, last = segments.first_block[:-1][~untiled], segments.first_block[1:][~untiled] - 1
    follows = np.zeros(len(blocks), np.bool_)
    follows[1:] = blocks.address[1:] == block_end[:-1]
    follows[first] = blocks.address[first] == segments.address[~untiled]
    untiled[owner[~follows]] = True
    untiled[owner[last][block_end[last] != end[owner[last]]]] = True
    bad = absurd | untiled
    sound = (~bad).nonzero()[0]
    over = sound[1:][end[sound[:-1]] > segments.address[sound[1:]]]
    bad[over] = True
    total = sum(segments.size[~bad].tolist())
    if total > MAX_DEVICE:
        raise _contradiction(SIZES_ABSURD, f"segments of device {device.index} of {format_size(total)} together")
    if not bad.any():
        return device, ()
    found = [
        (SIZES_ABSURD, "impossible sizes", int(absurd.sum())),
        (BLOCKS_DO_NOT_TILE, "blocks that do not fill them", int((untiled & ~absurd).sum())),
        (SEGMENTS_OVERLAP, "another segment in the same place", len(over)),
    ]
    if bad.sum() * 2 > len(segments):
        slug, what, count = max(found, key=lambda f: f[2])
        raise _contradiction(slug, f"{count} of {len(segments)} segments of device {device.index} have {what}")
    kept = replace(device, segments=_rows(segments, ~bad), blocks=_block_rows(blocks, ~bad[owner]))
    return kept, tuple(
        Skipped(slug, f"{count} of {len(segments)} segments of device {device.index} have {what} and are left out")
        for slug, what, count in found
        if count
    )


def _rows(segments: Segments, keep: NDArray[np.bool_]) -> Segments:
    count = np.diff(segments.first_block)[keep]
    columns = {f.name: getattr(segments, f.name)[keep] for f in fields(Segments) if f.name != "first_block"}
    return Segments(**columns, first_block=np.concatenate((np.zeros(1, np.int64), np.cumsum(count))))


def _block_rows(blocks: Blocks, keep: NDArray[np.bool_]) -> Blocks:
    return Blocks(**{f.name: getattr(blocks, f.name)[keep] for f in fields(Blocks)})


def _contradiction(slug: str, what: str) -> OomctlError:
    return OomctlError(f"contradicts itself ({slug}): {what}", _HINT)


def _check_time(index: int, trace: Trace) -> tuple[Skipped, ...]:
    if trace.time_us is None:
        return ()
    back = int((np.diff(trace.time_us) < 0).sum())
    if not back:
        return ()
    return (
        Skipped(
            TIME_RUNS_BACKWARDS,
            f"{back} events of device {index} are stamped earlier than the one before; their order in the file is used",
        ),
    )


@dataclass(frozen=True, slots=True)
class _Ends:
    """The last event at each address: the address, its size, and whether a block lives there after it."""

    address: NDArray[np.uint64]
    size: NDArray[np.int64]
    lives: NDArray[np.bool_]


def _ends_differently(device: DeviceSnapshot, trace: Trace) -> tuple[int, int]:
    """Addresses whose last event says otherwise than the segments do, and addresses looked at."""
    ends = _ends(trace)
    if ends is None:
        return 0, 0
    blocks = device.blocks
    used = (blocks.state != BlockState.INACTIVE).nonzero()[0]
    used = used[np.argsort(blocks.address[used], kind="stable")]
    if not len(used):
        return int(ends.lives.sum()), len(ends.lives)
    at = np.minimum(np.searchsorted(blocks.address[used], ends.address), len(used) - 1)
    there = blocks.address[used][at] == ends.address
    fits = there & (ends.size <= blocks.size[used][at])
    wrong = np.where(ends.lives, ~fits, there)
    return int(wrong.sum()), len(wrong)


def _ends(trace: Trace) -> _Ends | None:
    """None where the trace leaves out the allocations or the frees (`skip_actions`), or has none."""
    free = Action.FREE_COMPLETED if (trace.action == Action.FREE_COMPLETED).any() else Action.FREE_REQUESTED
    if not (trace.action == Action.ALLOC).any() or not (trace.action == free).any():
        return None
    order = trace.by_address()
    action = trace.action[order]
    order = order[(action == Action.ALLOC) | (action == free)]
    address = trace.address[order]
    row = order[np.append(address[1:] != address[:-1], True)]
    return _Ends(trace.address[row], trace.size[row], trace.action[row] == Action.ALLOC)
