"""`Incident`: everything that a device's snapshot, and the message beside it, say about the moment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.books import books, limit_of
from oomctl.analysis.curves import active_curve, reserved_curve
from oomctl.analysis.frames import label, user_frames
from oomctl.analysis.growth import Growth, measure_growth
from oomctl.analysis.lives import Lives, lives
from oomctl.analysis.moment import SMALL_SEGMENT, Heap, Moment, find_moment, heap_at, segment_size
from oomctl.analysis.steps import StepGrid, find_inner_loop, find_steps
from oomctl.model.alloc_conf import AllocConf, conf_from_recorded
from oomctl.model.alloc_conf.option import LAST_RELEASE
from oomctl.model.common import Version, VersionRange
from oomctl.model.log import OomEvent
from oomctl.model.report import Budget, Request
from oomctl.model.snapshot import Action, DeviceSnapshot, Snapshot


@dataclass(frozen=True, slots=True, eq=False)
class Incident:
    """One device at the moment.

    Attributes:
        snapshot: The file.
        device: The device.
        conf: Settings in force when it was recorded.
        torch: Versions that agree with all inputs.
        lives: Blocks with their births and deaths.
        moment: Which event it is about.
        heap: Segments, live blocks and holes there.
        active: int64[events], live bytes after each event.
        reserved: int64[events].
        grid: Steps up to the moment.
        growth: Live bytes by stack at successive steps.
        growth_by_size: True where there were no stacks and groups are sizes.
        request: The request that failed, or None.
        message: The log's message about the same failure, or None.
        budget: The books.
        truncated: Events at the beginning of the program are missing.
        user_roots: Path prefixes that are the user's.
    """

    snapshot: Snapshot
    device: DeviceSnapshot
    conf: AllocConf
    torch: VersionRange
    lives: Lives
    moment: Moment
    heap: Heap
    active: NDArray[np.int64]
    reserved: NDArray[np.int64]
    grid: StepGrid
    growth: Growth
    growth_by_size: bool
    request: Request | None
    message: OomEvent | None
    budget: Budget
    truncated: bool
    user_roots: tuple[str, ...]

    @property
    def has_stacks(self) -> bool:
        """Whether any live block or event carries frames."""
        return len(self.snapshot.stacks) > 0

    @property
    def failed(self) -> bool:
        """Whether the moment is a fatal failure."""
        return self.moment.kind == "oom"

    @property
    def step_start(self) -> int:
        """Trace index where the step under way at the moment began; 0 when no steps are known."""
        return int(self.grid.starts[-1]) if len(self.grid) else 0

    def in_private_pool(self) -> NDArray[np.bool_]:
        """bool[len(lives)]: blocks of graph captures and MemPools."""
        return self.lives.pool > 0


def newest(torch: VersionRange) -> Version:
    """A version to apply rules of: the newest that agrees with the evidence."""
    return torch.high or (max(torch.low, LAST_RELEASE) if torch.low is not None else LAST_RELEASE)


def incident(
    snapshot: Snapshot,
    device: DeviceSnapshot,
    *,
    message: OomEvent | None = None,
    torch: VersionRange | None = None,
    device_total: int | None = None,
    conf: AllocConf | None = None,
    user_roots: tuple[str, ...] = (),
) -> Incident:
    """Works out the moment, the books, the steps and the growth of one device.

    Args:
        snapshot: The file.
        device: One of its devices.
        message: The log's message about this failure, if there is one.
        torch: Versions that agree with all inputs; the snapshot's own by default.
        device_total: The card's bytes where known from elsewhere.
        conf: Settings in force; by default those recorded in the snapshot.
        user_roots: Path prefixes that are the user's.
    """
    torch = torch or snapshot.torch
    conf = conf or conf_from_recorded(snapshot.settings, newest(torch))
    blocks = lives(device, conf.roundup_power2_divisions)
    moment = find_moment(device, blocks, message.tried_to_allocate if message else None)
    heap = heap_at(device, blocks, moment.event, conf.max_split_size, conf.max_non_split_rounding)
    if device.trace is None and message is not None and _same_state(heap, message):
        moment = Moment(-1, "oom")
    active, reserved = active_curve(blocks), reserved_curve(device)
    truncated = _truncated(device, blocks)
    # Without a failure the whole trace is of interest for steps and growth, not only what precedes the peak.
    until = moment.event if moment.kind == "oom" else blocks.events - 1
    grid = find_steps(snapshot, device, active, until)
    by_size = not bool((blocks.stack >= 0).any())
    signature = blocks.requested if by_size else blocks.stack.astype(np.int64)
    private = blocks.pool > 0
    growth = measure_growth(blocks, signature, grid.starts, until, private, truncated)
    if moment.kind == "oom" and not bool(growth.growing.any()):
        inner = find_inner_loop(snapshot, device, active, grid, until)
        looped = measure_growth(blocks, signature, inner.starts, until, private, truncated)
        floor = int(active[max(int(inner.starts[0]) - 1, 0)]) if len(inner) else 0
        if looped.total > 0.5 * max(heap.active - floor, 1):
            grid, growth = inner, looped
    request = _request(snapshot, device, moment, conf, message, user_roots)
    limit, limit_kind = limit_of(device, moment, heap, reserved, request, message)
    budget = books(device, heap, moment, blocks, request, limit, limit_kind, message, device_total)
    return Incident(
        snapshot, device, conf, torch, blocks, moment, heap, active, reserved, grid, growth, by_size, request, message,
        budget, truncated, user_roots,
    )  # fmt: skip


def _same_state(heap: Heap, message: OomEvent) -> bool:
    """Whether segments without a trace show the state that the message speaks of, within its rounding.

    Reserved memory alone does not tell: it stays after the failing call has ended and its tensors are freed.
    """
    reserved, allocated = message.reserved, message.allocated
    if reserved is None and allocated is not None and message.reserved_unallocated is not None:
        reserved = allocated + message.reserved_unallocated
    if reserved is None or allocated is None:
        return False
    in_use = heap.active - heap.pending
    allocated -= message.private_pools or 0
    return all(
        abs(here - told) <= max(told // 100, 1 << 20) for here, told in ((heap.reserved, reserved), (in_use, allocated))
    )


def _truncated(device: DeviceSnapshot, blocks: Lives) -> bool:
    """Whether the beginning is missing: blocks or segments exist that no recorded event made."""
    trace = device.trace
    if trace is None:
        return False
    if bool((blocks.born < 0).any()):
        return True
    made = np.isin(trace.action, (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP))
    gone = np.isin(trace.action, (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP))
    return int(trace.size[made].sum()) - int(trace.size[gone].sum()) != int(device.segments.size.sum())


def _request(
    snapshot: Snapshot,
    device: DeviceSnapshot,
    moment: Moment,
    conf: AllocConf,
    message: OomEvent | None,
    user_roots: tuple[str, ...],
) -> Request | None:
    trace = device.trace
    if moment.kind != "oom" or trace is None:
        tried = message.tried_to_allocate if message else None
        # Without a trace the request is only known as the segment that it would have taken.
        kind = None if moment.kind != "oom" else "small" if tried == SMALL_SEGMENT else "large"
        size = tried if moment.kind == "oom" else None
        return Request(size=size, segment_size=tried, pool=kind, stream=0) if tried else None
    size = int(trace.size[moment.event])
    frames = user_frames(snapshot.stacks[int(trace.stack[moment.event])], user_roots)
    pool = device.pools[int(trace.pool[moment.event])] if trace.pool is not None else None
    return Request(
        size=size,
        segment_size=segment_size(size, conf.large_segment_size),
        pool="small" if size <= 1 << 20 else "large",
        stream=int(trace.stream[moment.event]),
        stack_label=label(frames[0]) if frames else None,
        pool_id=pool if pool and pool != (0, 0) else None,
    )
