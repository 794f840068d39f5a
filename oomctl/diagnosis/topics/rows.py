"""A page for each row of `torch.cuda.memory_summary()`."""

from __future__ import annotations

from typing import Final

from oomctl.diagnosis.table_rows import MEANING
from oomctl.model.pages import Page

# Label -> (key of memory_stats(), first torch, how to read it, related pages).
# Source: torch/cuda/memory.py, 1.4 to 2.14.
_READING: Final[dict[str, tuple[str, str, str, tuple[str, ...]]]] = {
    "CUDA OOMs": (
        "num_ooms",
        "1.4",
        "Failures that reached the program, those that a library caught included (cuDNN's algorithm search causes "
        "many). 0 in a table that was printed after a failure means that something else failed: the driver, a library "
        "or another device.",
        ("error-message",),
    ),
    "cudaMalloc retries": (
        "num_alloc_retries",
        "1.4",
        "How often torch flushed its whole cache and asked the driver again. Retries without OOMs mean that it got by, "
        "slowly: the card is nearly full, or the cache fits what is asked for badly. A few after a change of phase are "
        "normal; a number that climbs every step is not.",
        ("alloc-and-free", "fragmentation"),
    ),
    "Allocated memory": (
        "allocated_bytes",
        "1.4",
        "The number to watch for a leak: at the same point of every step it should be the same. Cur far below Peak "
        "means that a step makes much more for a while; Peak is what has to fit.",
        ("reserved-vs-allocated", "leak-hunting"),
    ),
    "Active memory": (
        "active_bytes",
        "1.4",
        "Far above Allocated memory: frees that wait for another stream (record_stream), because the host runs ahead "
        "of the device. Far above Requested memory: rounding.",
        ("streams", "four-numbers"),
    ),
    "Requested memory": (
        "requested_bytes",
        "2.0",
        "Active minus Requested is what rounding costs: 512-byte steps, roundup_power2_divisions, rests too small to "
        "split off. More than a few percent deserves a look at the settings. It may be above Allocated while frees are "
        "pending.",
        ("rounding", "roundup_power2_divisions"),
    ),
    "GPU reserved memory": (
        "reserved_bytes",
        "1.4",
        "What nvidia-smi sees of the allocator (the CUDA context comes on top). Reserved minus Active is the cache, "
        "which is no leak by itself.",
        ("reserved-vs-allocated", "nvidia-smi"),
    ),
    "Non-releasable memory": (
        "inactive_split_bytes",
        "1.4",
        "Compare it with the request that failed and with the card: a large share of the card means fragmentation. "
        "With expandable_segments it leaves that memory out and reads near 0.",
        ("fragmentation", "split_segments"),
    ),
    "Allocations": (
        "allocation",
        "1.4",
        "A count that climbs every step at the same point means that tensors are kept, even when they are small.",
        ("leak-hunting",),
    ),
    "Active allocs": (
        "active",
        "1.4",
        "More of them than Allocations: frees that wait for another stream.",
        ("streams",),
    ),
    "GPU reserved segments": (
        "segment",
        "1.4",
        "Many segments with little in them go with fragmentation. Expandable segments are not counted.",
        ("two-level-model",),
    ),
    "Non-releasable allocs": (
        "inactive_split",
        "1.4",
        "Non-releasable memory divided by it is the average hole: compare that with the request.",
        ("fragmentation",),
    ),
    "Oversize allocations": (
        "oversize_allocations",
        "1.10",
        "0 unless max_split_size_mb is set.",
        ("max_split_size_mb",),
    ),
    "Oversize GPU segments": (
        "oversize_segments",
        "1.10",
        "0 unless max_split_size_mb is set; with it, whole segments that small requests may not use.",
        ("max_split_size_mb",),
    ),
}

_HEAD: Final = {
    "CUDA OOMs": "allocations that failed for good",
    "cudaMalloc retries": "flushes of the whole cache, after which the driver was asked again",
}


def _page(label: str) -> Page:
    key, since, reading, see = _READING[label]
    meaning = MEANING.get(label) or _HEAD[label]
    text = (
        f"{meaning[0].upper()}{meaning[1:]}.\n\n{reading}\n\nIn torch.cuda.memory_stats() it is {key}"
        + ("" if label in _HEAD else ".all.current (peak, allocated and freed for the other columns)")
        + f". Printed by torch {since} and later."
    )
    return Page("", "-".join(label.lower().split()), f"{label}: {meaning}", text, (*see, "memory-summary"), (key,))


ROW_PAGES: Final[tuple[Page, ...]] = tuple(_page(label) for label in _READING)
"""For `oomctl explain`."""
