"""Which torch, and which device's allocator, wrote a snapshot: told by the keys and by the rounding of sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from oomctl.model.common import Version, VersionRange
from oomctl.model.snapshot import Action, BlockState, DeviceSnapshot
from oomctl.sources.interning import StackInterner


@dataclass(frozen=True, slots=True)
class Keys:
    """Keys that occur in a snapshot.

    Attributes:
        top: Of the whole; None for a bare list of segments.
        segments: Of any segment.
        blocks: Of any block.
        events: Of any trace event; None where there is no event.
        settings: Of the allocator settings; None where there are none.
    """

    top: frozenset[str] | None
    segments: frozenset[str]
    blocks: frozenset[str]
    events: frozenset[str] | None
    settings: frozenset[str] | None


_SINCE: Final[tuple[tuple[str, str, Version], ...]] = (
    ("blocks", "history", (1, 13)),
    ("top", "segments", (2, 0)),
    ("blocks", "requested_size", (2, 0)),
    ("segments", "segment_pool_id", (2, 1)),
    ("segments", "is_expandable", (2, 1)),
    ("blocks", "frames", (2, 1)),
    ("events", "time_us", (2, 2)),
    ("top", "allocator_settings", (2, 3)),
    ("top", "external_annotations", (2, 5)),
    ("events", "compile_context", (2, 8)),
    ("settings", "graph_capture_record_stream_reuse", (2, 9)),
    ("events", "user_metadata", (2, 10)),
    ("events", "forward_frames", (2, 11)),
    ("blocks", "forward_frames", (2, 11)),
    ("events", "pool_id", (2, 12)),
    ("settings", "max_cached_size", (2, 13)),
    ("top", "host_segments", (2, 14)),
    ("top", "host_traces", (2, 14)),
)
"""First torch that writes each key."""
_ALWAYS: Final = frozenset(
    (
        ("blocks", "requested_size"), ("segments", "segment_pool_id"), ("blocks", "frames"), ("events", "time_us"),
        ("top", "allocator_settings"), ("top", "external_annotations"), ("events", "compile_context"),
        ("settings", "graph_capture_record_stream_reuse"), ("events", "user_metadata"), ("events", "pool_id"),
        ("settings", "max_cached_size"),
    )
)  # fmt: skip
"""Keys that every torch from then on writes, so that their absence tells something too."""


def torch_range(keys: Keys, backend: str) -> VersionRange:
    """Versions of torch that write these keys (nightlies fall between).

    Args:
        keys: What occurs in the snapshot.
        backend: As `backend_of` says; other vendors' forks leave keys out at will, so that absence tells nothing.
    """
    low: Version | None = None
    high: Version | None = None
    for place, key, since in _SINCE:
        present: frozenset[str] | None = getattr(keys, place)
        if present is None or (place != "top" and not present):
            continue
        if key in present:
            low = since if low is None else max(low, since)
        elif (place, key) in _ALWAYS and backend != "npu":
            before = _before(since)
            high = before if high is None else min(high, before)
    if low is not None and high is not None and low > high:
        return VersionRange(low, None)  # a hand-made mixture, or a fork: what is there counts
    return VersionRange(low, high)


def _before(version: Version) -> Version:
    return (1, 13) if version == (2, 0) else (version[0], version[1] - 1)


def backend_of(devices: Sequence[DeviceSnapshot], stacks: StackInterner) -> str:
    """ "npu", "xpu", or "cuda" (which HIP's snapshots say too)."""
    for device in devices:
        trace = device.trace
        if trace is not None and bool((trace.action == Action.WORKSPACE_SNAPSHOT).any()):
            return "npu"
    if stacks.mentions("torch_npu") or any(map(_rounds_like_npu, devices)):
        return "npu"
    high = np.uint64(1 << 63)
    if any(bool((d.segments.address >= high).any()) for d in devices):
        return "xpu"  # CUDA and HIP hand out user-space addresses only
    return "xpu" if stacks.mentions("XPUCachingAllocator", "c10::xpu", "torch/xpu/") else "cuda"


def _rounds_like_npu(device: DeviceSnapshot) -> bool:
    """Whether blocks of the small pool hold their request and 32 bytes, as Ascend's allocator adds them."""
    segments, blocks = device.segments, device.blocks
    small = np.repeat(~segments.is_large, np.diff(segments.first_block))
    used = small & (blocks.state != BlockState.INACTIVE) & (blocks.requested > 0)
    size, requested = blocks.size[used], blocks.requested[used]
    padded = (requested + 32 + 511) // 512 * 512
    plain = (requested + 511) // 512 * 512
    return bool(len(size) and (size == padded).all() and (padded != plain).any())
