"""Who holds the live bytes at a moment: by frame, by stack or by size."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

import numpy as np

from oomctl.analysis.curves import active_curve
from oomctl.analysis.frames import fold, user_frames
from oomctl.analysis.lives import Lives, lives
from oomctl.analysis.moment import Heap, find_moment, heap_at
from oomctl.errors import OomctlError
from oomctl.model.alloc_conf import conf_from_recorded
from oomctl.model.common import InputFile, Skipped
from oomctl.model.holdings import HoldingRow, Holdings
from oomctl.model.report import Device
from oomctl.model.snapshot import Action, DeviceSnapshot, Snapshot
from oomctl.model.stacks import Frame

WAYS: Final = ("frame", "stack", "size")
"""What rows can be."""

_NOT_RECORDED: Final = "(recorded without a stack)"


@dataclass
class _Group:
    """Blocks of one row while they are summed."""

    bytes: int = 0
    blocks: int = 0
    stacks: int = 0
    largest: int = -1
    example: int = -1


def event_at(device: DeviceSnapshot, blocks: Lives, at: str) -> tuple[int, str]:
    """(trace index, kind) of a moment as the user names it.

    Args:
        device: One device.
        blocks: Its blocks.
        at: "oom" (the fatal failure, else the last one), "peak" (most live bytes), "end" or a trace index.

    Raises:
        OomctlError: There is no such moment in the trace.
    """
    trace = device.trace
    if trace is None or not len(trace):
        if at not in ("end", "peak"):
            raise OomctlError(
                "the snapshot has no trace, only the state at its end", "ask for --at end, or record the events too"
            )
        return -1, "end"
    if at == "end":
        return len(trace) - 1, "end"
    if at == "peak":
        return int(active_curve(blocks).argmax()), "peak"
    if at == "oom":
        moment = find_moment(device, blocks)
        ooms = np.flatnonzero(trace.action == Action.OOM)
        if not len(ooms):
            raise OomctlError("nothing failed in this trace", "ask for --at peak or --at end")
        return (moment.event if moment.kind == "oom" else int(ooms[-1])), "oom"
    number = at.replace(",", "").replace("_", "")
    if not (number.isascii() and number.isdecimal()):
        raise OomctlError(f"no moment {at!r}", "one of oom, peak, end, or the number of an event")
    event = int(number[:20])
    if event >= len(trace):
        raise OomctlError(f"there is no event {event:,}", f"the trace has events 0 to {len(trace) - 1:,}")
    return event, "event"


def holdings(
    snapshot: Snapshot,
    device: DeviceSnapshot,
    *,
    at: str = "peak",
    by: str = "frame",
    inputs: tuple[InputFile, ...] = (),
    user_roots: tuple[str, ...] = (),
) -> Holdings:
    """Who holds the live bytes of one device at one moment.

    Args:
        snapshot: The file.
        device: One of its devices.
        at: As in `event_at`.
        by: "frame" (the innermost frame of the user's), "stack" or "size".
        inputs: Handed on.
        user_roots: Path prefixes that are the user's.

    Returns:
        Rows that sum to the active bytes.

    Raises:
        OomctlError: There is no such moment.
    """
    if by not in WAYS:
        raise OomctlError(f"no rows by {by!r}", "one of " + ", ".join(WAYS))
    conf = conf_from_recorded(snapshot.settings, snapshot.torch.high or (2, 11))
    blocks = lives(device, conf.roundup_power2_divisions)
    event, kind = event_at(device, blocks, at)
    heap = heap_at(device, blocks, event, conf.max_split_size, conf.max_non_split_rounding)
    trace = device.trace
    return Holdings(
        inputs=inputs,
        device=Device(snapshot.backend, device.index),
        at=kind,
        event=event,
        events_total=0 if trace is None else len(trace),
        time_us=int(trace.time_us[event]) if trace is not None and trace.time_us is not None else None,
        by=by,
        active=heap.active,
        pending=heap.pending,
        reserved=heap.reserved,
        blocks=len(heap.live),
        rows=_by_size(heap, blocks) if by == "size" else _by_code(snapshot, heap, blocks, by, user_roots),
        limits=_limits(snapshot, device, heap, blocks),
    )


def _by_size(heap: Heap, blocks: Lives) -> tuple[HoldingRow, ...]:
    sizes, inverse, counts = np.unique(heap.live_size, return_inverse=True, return_counts=True)
    pairs = np.unique(np.stack([inverse, blocks.stack[heap.live]]), axis=1)
    stacks = np.bincount(pairs[0][pairs[1] >= 0], minlength=len(sizes)) if len(sizes) else counts
    total = max(heap.active, 1)
    rows = [
        HoldingRow(size * count, count, size * count / total, size=size, stacks=n)
        for size, count, n in zip(sizes.tolist(), counts.tolist(), stacks.tolist(), strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.size or 0)))


def _by_code(
    snapshot: Snapshot, heap: Heap, blocks: Lives, by: str, user_roots: tuple[str, ...]
) -> tuple[HoldingRow, ...]:
    values, inverse, counts = np.unique(blocks.stack[heap.live], return_inverse=True, return_counts=True)
    sums = np.zeros(len(values), np.int64)
    np.add.at(sums, inverse, heap.live_size)
    groups: dict[Hashable, _Group] = {}
    for stack, count, size in zip(values.tolist(), counts.tolist(), sums.tolist(), strict=True):
        frames = user_frames(snapshot.stacks[stack], user_roots) if stack >= 0 else []
        group = groups.setdefault(tuple(frames) if by == "stack" else frames[0] if frames else None, _Group())
        group.bytes += size
        group.blocks += count
        group.stacks += stack >= 0
        if size > group.largest:
            group.largest, group.example = size, stack
    total = max(heap.active, 1)
    rows = []
    for group in groups.values():
        frames = user_frames(snapshot.stacks[group.example], user_roots) if group.example >= 0 else []
        first = frames[0] if frames else Frame("", 0, _NOT_RECORDED)
        stack_lines = fold(snapshot.stacks[group.example], user_roots) if frames else ()
        rows.append(
            HoldingRow(
                group.bytes, group.blocks, group.bytes / total, first.filename, first.line, first.name, stack_lines,
                stacks=group.stacks,
            )
        )  # fmt: skip
    return tuple(sorted(rows, key=lambda row: (-row.bytes, row.file, row.line, row.function)))


def _limits(snapshot: Snapshot, device: DeviceSnapshot, heap: Heap, blocks: Lives) -> tuple[Skipped, ...]:
    told = list(snapshot.skipped)
    if device.trace is None:
        told.append(
            Skipped(
                "any other moment than the end",
                "the snapshot has segments but no trace",
                "call torch.cuda.memory._record_memory_history() at the start and dump before disabling it",
            )
        )
    if len(heap.live) and not bool((blocks.stack[heap.live] >= 0).any()):
        told.append(
            Skipped("whose code it was", "the live blocks carry no stack frames", "record with stacks='python'")
        )
    if heap.outside:
        told.append(Skipped("some blocks", f"{heap.outside:,} blocks lie in no segment and are left out"))
    return tuple(told)
