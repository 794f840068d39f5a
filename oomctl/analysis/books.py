"""The books: where every byte of the card was at the moment."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from oomctl.analysis.lives import Lives
from oomctl.analysis.moment import Heap, Moment
from oomctl.model.log import OomEvent
from oomctl.model.report import Budget, Request
from oomctl.model.snapshot import DeviceSnapshot
from oomctl.units import half_digit

_DRIVER_SLACK: Final = 32 << 20
"""A nearly full card can refuse a segment although a little more than its size is reported free."""


def limit_of(
    device: DeviceSnapshot,
    moment: Moment,
    heap: Heap,
    reserved: NDArray[np.int64],
    request: Request | None,
    message: OomEvent | None,
) -> tuple[int | None, str | None]:
    """What stopped the allocator, in bytes of reserved memory, and its kind.

    A fraction cap is tested against reserved plus the whole segment before any driver call; the card stops on real
    bytes. "allowed" in a message does not mean that the cap was hit. Without a message a cap shows itself by a device
    that had room for the segment; it is then only known to lie below reserved plus segment ("fraction_bracket").

    Returns:
        (limit, "fraction" | "fraction_bracket" | "device"), or (None, None) without a failure.
    """
    if moment.kind != "oom" or request is None or request.segment_size is None:
        return None, None
    free = device.trace.device_free.get(moment.event) if device.trace is not None else None
    if free is None and message is not None:
        free = message.free
    segment = request.segment_size
    capped: bool | None = None
    if message is not None:
        allowed = message.allowed or 0
        capped = bool(allowed) and heap.reserved + segment > allowed - half_digit(allowed)
        if capped:
            return allowed, "fraction"
    if free is None:
        return None, None
    if capped is None and free >= segment + _DRIVER_SLACK:
        return heap.reserved + segment - 1, "fraction_bracket"
    return heap.reserved + min(free, segment - 1), "device"


def books(
    device: DeviceSnapshot,
    heap: Heap,
    moment: Moment,
    lives: Lives,
    request: Request | None,
    limit: int | None,
    limit_kind: str | None,
    message: OomEvent | None,
    device_total: int | None,
) -> Budget:
    """Every byte of the card; the parts sum to the whole or the remainder is shown.

    Args:
        device: The device.
        heap: Its heap at the moment.
        moment: The moment.
        lives: Its blocks.
        request: The request that failed, or None.
        limit: From `limit_of`.
        limit_kind: From `limit_of`.
        message: The log's message, or None: it brings the card's size and the neighbours.
        device_total: The card's bytes where known from elsewhere.
    """
    reserved, active, pending = heap.reserved, heap.active, heap.pending
    requested = int(np.minimum(lives.requested[heap.live], heap.live_size)[~heap.live_pending].sum())
    live_in = heap.live_bytes_by_segment()
    hole_segment = heap.hole_segment
    private = heap.pool[hole_segment] > 0
    whole = ~private & (live_in[hole_segment] == 0)
    other = np.zeros(len(hole_segment), bool)
    if request is not None and request.size is not None:
        wrong_pool = heap.is_large[hole_segment] != (request.pool == "large")
        wrong_stream = heap.stream[hole_segment] != np.uint64(request.stream or 0)
        other = ~private & ~whole & (wrong_pool | wrong_stream)
    split = ~private & ~whole & ~other

    def idle(mask: NDArray[np.bool_]) -> int:
        return int(heap.hole_size[mask].sum())

    free = device.trace.device_free.get(moment.event) if device.trace is not None and moment.event >= 0 else None
    total = device_total
    others: int | None = None
    own: int | None = None
    if message is not None:
        total = message.total_capacity or total
        free = message.free if free is None else free
        own = message.this_process_in_use
        named = [size for _, size in message.processes]
        others = sum(named) if named else (0 if own is not None else None)
    non_pytorch = max(own - reserved, 0) if own is not None else None
    outside = unexplained = None
    if total is not None and free is not None:
        outside = max(total - free - reserved - (others or 0), 0)
        if non_pytorch is not None and others is not None:
            unexplained = total - free - reserved - non_pytorch - others
    usable = heap.hole_size[split | (whole & of_request(heap, request))] if request is not None else heap.hole_size
    return Budget(
        device_total=total,
        limit=limit,
        limit_kind=limit_kind,
        other_processes=others,
        non_pytorch=non_pytorch,
        outside=outside if others is None or non_pytorch is None else None,
        free=free,
        unexplained=unexplained,
        reserved=reserved,
        allocated=active - pending,
        active=active,
        requested=requested,
        rounding=active - pending - requested,
        pending_free=pending,
        idle_split=idle(split),
        idle_whole_segments=idle(whole),
        idle_other_streams=idle(other),
        idle_private_pools=idle(private),
        shortage=_shortage(request, limit, limit_kind, reserved, free),
        largest_hole=int(usable.max()) if len(usable) else 0,
        source="segments" if device.trace is None else "trace",
    )


def _shortage(
    request: Request | None, limit: int | None, limit_kind: str | None, reserved: int, free: int | None
) -> int | None:
    """Bytes that were missing for the segment; None where the figures leave that open."""
    if request is None or request.segment_size is None or limit is None or limit_kind == "fraction_bracket":
        return None
    if limit_kind == "device" and free is not None and free >= request.segment_size:
        return None  # a nearly full card refused although this much was reported free
    return max(request.segment_size - (limit - reserved), 0)


def of_request(heap: Heap, request: Request | None) -> Any:
    """bool[holes]: of the request's stream and size class."""
    segment = heap.hole_segment
    if request is None or request.size is None:
        return np.ones(len(segment), bool)
    return (heap.is_large[segment] == (request.pool == "large")) & (
        heap.stream[segment] == np.uint64(request.stream or 0)
    )
