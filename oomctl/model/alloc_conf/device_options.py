"""Options that decide how device memory is cut up, kept and given back."""

from __future__ import annotations

from typing import Final

from oomctl.model.alloc_conf.option import Option

DEVICE_OPTIONS: Final[tuple[Option, ...]] = (
    Option(
        key="expandable_segments",
        title="one growing address range instead of many separate segments",
        value="True or False, spelt exactly so",
        default="False",
        since=(2, 1),
        until=None,
        does="Instead of asking the driver for separate segments, torch reserves one long range of addresses per "
        "stream and pool and maps memory into it in granules (2 MiB for small requests, 20 MiB for large ones). "
        "Neighbouring free blocks merge into one, and free granules can be given back one by one.",
        symptom="Fragmentation from sizes that vary: much more reserved than allocated, many free blocks and none "
        "large enough, a failure although the idle memory would do. It is the first setting to try for that; it does "
        "nothing for a leak, a peak or a model that is too large.",
        cost="First touches are slower, since mapping costs more than reuse. A granule is pinned by the smallest live "
        "tensor in it. It does not merge memory across streams or private pools. The segment rows of "
        "memory_summary() and 'Non-releasable' no longer tell the fragmentation, since they leave this memory out.",
        conflicts=(
            (
                "max_split_size_mb",
                "asserts before 2.5; adds nothing after, and can make reserved memory grow (2.12-2.14)",
            ),
            ("garbage_collection_threshold", "asserts before 2.5; from 2.5 on collection skips this memory"),
            ("Windows", "ignored with a warning before torch 2.14"),
            ("ROCm", "needs torch 2.12 and ROCm 7.0; ignored with a warning before"),
            (
                "sharing tensors between processes",
                "raises in 2.1 to 2.4; from 2.5 on it needs pidfd_open in the kernel",
            ),
            (
                "torch.cuda.MemPool",
                "raises in 2.7 to 2.9; a pool with an allocator of its own uses cudaMalloc from 2.10 on",
            ),
            ("GPUDirect RDMA, NIXL, sleep modes that unmap memory", "some third-party libraries do not support it"),
        ),
        history=(
            ((2, 1), "new"),
            ((2, 5), "no more assertions together with max_split_size_mb or garbage_collection_threshold; IPC works"),
            ((2, 10), "decided per request: a pool with an allocator of its own keeps to cudaMalloc"),
            ((2, 11), "granule of the large pool follows large_segment_size_mb"),
            ((2, 14), "works on Windows"),
        ),
        example="expandable_segments:True",
        shared=True,
        see=("fragmentation", "classic-and-expandable", "max_split_size_mb"),
    ),
    Option(
        key="max_split_size_mb",
        title="keep large blocks whole",
        value="whole number of MiB: at least large_segment_size_mb (20) from torch 2.10, more than 20 before",
        default="unlimited",
        since=(1, 10),
        until=None,
        does="A block of this size or more is never split and never given to a request below this size. A request of "
        "this size or more takes a free block only if it is at most max_non_split_rounding_mb (20 MiB) larger. When "
        "memory runs short, torch frees such a block alone before it flushes everything.",
        symptom="Small tensors eat into huge free blocks, so that the next huge request finds none whole. Try "
        "expandable_segments first, and replay this one (`oomctl whatif`) before you use it.",
        cost="More cudaMalloc and cudaFree, which stall the device, and whole blocks that wait idle. Where memory was "
        "not short it raised reserved memory in 12 of 15 measured runs, up to fivefold; small values are the worst.",
        conflicts=(
            (
                "expandable_segments",
                "asserts before 2.5; pointless after, and reserved can grow without end (2.12-2.14)",
            ),
            ("backend:cudaMallocAsync", "ignored"),
        ),
        history=(
            ((1, 10), "new"),
            ((2, 6), "the 20 MiB of allowed surplus became max_non_split_rounding_mb"),
            ((2, 10), "20 itself is allowed"),
            ((2, 11), "the lower bound is large_segment_size_mb"),
        ),
        example="max_split_size_mb:512",
        shared=True,
        see=("fragmentation", "expandable_segments", "max_non_split_rounding_mb"),
    ),
    Option(
        key="garbage_collection_threshold",
        title="free old idle blocks before the limit is reached",
        value="number between 0 and 1, both excluded",
        default="off",
        since=(1, 12),
        until=None,
        does="When no free block fits and reserved memory is above this share of the memory fraction, torch gives back "
        "whole idle segments of the large pool that have not been used for long, before it asks the driver for more.",
        symptom="Several processes share a card under memory fractions, and full flushes ('cudaMalloc retries' in "
        "memory_summary()) cost time.",
        cost="It does nothing at all unless a memory fraction is set, with "
        "torch.cuda.set_per_process_memory_fraction() or per_process_memory_fraction (2.10+, below 1). It never "
        "touches split segments, the small pool or private pools, so it does not cure fragmentation. Freeing and "
        "asking again costs time.",
        conflicts=(
            ("no memory fraction", "without effect, and torch does not say so"),
            ("expandable_segments", "asserts before 2.5; from 2.5 on expandable memory is left alone"),
            ("backend:cudaMallocAsync", "ignored"),
        ),
        history=(
            ((1, 12), "new"),
            ((2, 5), "leaves expandable segments alone"),
            ((2, 10), "a fraction of exactly 1 no longer arms it"),
        ),
        example="garbage_collection_threshold:0.8,per_process_memory_fraction:0.9",
        shared=True,
        see=("per_process_memory_fraction", "alloc-and-free"),
    ),
    Option(
        key="roundup_power2_divisions",
        title="round sizes so that fewer distinct ones occur",
        value="a power of two, or a list such as [256:1,512:2,1024:4,>:8] of size in MiB : divisions",
        default="no rounding beyond 512 bytes",
        since=(1, 12),
        until=None,
        does="Splits the span between two powers of two into this many steps and rounds requests up to the next step, "
        "so that freed blocks fit later requests of about the same size. 1 means no rounding. In a list the first "
        "entry also holds for all smaller sizes, sizes that are left out are not rounded, and > stands for all larger "
        "ones.",
        symptom="Shapes that vary a little every step (sequence lengths, image sizes), where expandable segments "
        "cannot be used.",
        cost="Every tensor in the rounded range may take up to 1/d of its size more: up to 50% at 2, 25% at 4, 12.5% "
        "at 8 of the power of two below it. The surplus shows as 'Active' above 'Requested' in memory_summary().",
        conflicts=(("backend:cudaMallocAsync", "ignored"),),
        history=(
            ((1, 12), "new: one number for all sizes"),
            ((2, 0), "lists; every size has its own divisions"),
            ((2, 4), "0 is allowed inside a list"),
            ((2, 10), "> starts above the last listed size; up to 2.9 it overwrites that size's divisions"),
        ),
        example="roundup_power2_divisions:8",
        shared=True,
        see=("rounding", "fragmentation"),
    ),
    Option(
        key="roundup_bypass_threshold_mb",
        title="do not round sizes above this",
        value="whole number of MiB",
        default="unlimited",
        since=(1, 13),
        until=(1, 13),
        does="Requests above this size skip the rounding of roundup_power2_divisions.",
        symptom="On torch 1.13, to keep rounding away from large tensors; later versions use a list in "
        "roundup_power2_divisions for it.",
        cost="None; but from torch 2.0 on the program does not start with it.",
        history=(((1, 13), "new"), ((2, 0), "gone; still named in a warning of 2.0")),
        see=("roundup_power2_divisions",),
    ),
    Option(
        key="max_non_split_rounding_mb",
        title="surplus allowed to unsplit large blocks",
        value="whole number of MiB: at least large_segment_size_mb (20) from torch 2.10, more than 20 before",
        default="20 (large_segment_size_mb from torch 2.11)",
        since=(2, 6),
        until=None,
        does="How much larger than the request a block at or above max_split_size_mb may be and still be used for it.",
        symptom="Together with max_split_size_mb, when nearly fitting large blocks stay unused and torch asks the "
        "driver again and again.",
        cost="The surplus is wasted for as long as the block is in use.",
        conflicts=(("no max_split_size_mb", "without effect"), ("backend:cudaMallocAsync", "ignored")),
        history=(((2, 6), "new; 20 MiB, fixed, before"), ((2, 11), "reset to large_segment_size_mb by every parse")),
        example="max_split_size_mb:512,max_non_split_rounding_mb:64",
        shared=True,
        see=("max_split_size_mb",),
    ),
    Option(
        key="large_segment_size_mb",
        title="size of the segments that hold requests of 1 to 10 MiB",
        value="whole number of MiB, more than 10",
        default="20",
        since=(2, 11),
        until=None,
        does="Requests above 1 MiB and below 10 MiB share segments of this size; it is also the granule of the large "
        "pool under expandable segments. Smaller and larger requests are not affected.",
        symptom="Very many tensors of a few MiB, so that cudaMalloc calls add up.",
        cost="One small live tensor keeps a whole such segment. It is read before all other options and raises the "
        "lower bound of max_split_size_mb and max_non_split_rounding_mb.",
        conflicts=(
            ("max_split_size_mb below it", "the program does not start"),
            ("backend:cudaMallocAsync", "ignored"),
        ),
        history=(((2, 11), "new; 20 MiB, fixed, before"),),
        example="large_segment_size_mb:64",
        shared=True,
        see=("two-level-model", "max_split_size_mb"),
    ),
    Option(
        key="per_process_memory_fraction",
        title="cap this process's torch memory",
        value="number from 0 to 1",
        default="1, no cap",
        since=(2, 10),
        until=None,
        does="Refuses to reserve more than this share of the card, as torch.cuda.set_per_process_memory_fraction() "
        "does. Only torch's own memory counts: the CUDA context, NCCL and other libraries come on top.",
        symptom="Several jobs share a card, or you want to see early whether a smaller card would do.",
        cost="A request above the cap fails although the card has room; the message then names it as 'allowed'. Under "
        "a cap garbage_collection_threshold becomes active.",
        history=(((2, 10), "new; call torch.cuda.set_per_process_memory_fraction() before"),),
        example="per_process_memory_fraction:0.9",
        see=("garbage_collection_threshold", "throw_on_cudamalloc_oom"),
    ),
    Option(
        key="throw_on_cudamalloc_oom",
        title="fail at the memory fraction at once",
        value="True or False, spelt exactly so",
        default="False",
        since=(2, 12),
        until=None,
        does="A request that would exceed the memory fraction is refused before torch flushes its cache and tries "
        "again.",
        symptom="Services that would rather refuse a request than stall while the cache is flushed.",
        cost="More failures: idle memory that a flush would have returned is not used.",
        conflicts=(("no memory fraction", "without effect"),),
        history=(((2, 12), "new"),),
        example="throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.9",
        see=("per_process_memory_fraction", "alloc-and-free"),
    ),
    Option(
        key="backend",
        title="which allocator serves torch",
        value="native or cudaMallocAsync (hipMallocAsync on ROCm)",
        default="native",
        since=(2, 0),
        until=None,
        does="cudaMallocAsync hands allocation to the driver's stream-ordered pool (CUDA 11.4 or later).",
        symptom="Programs that share the card's memory pool with other libraries; sometimes fragmentation.",
        cost="All options of the native allocator are ignored. There are no memory snapshots, no recorded history and "
        "hardly any statistics, so a later failure cannot be explained. The error message is another one and may be "
        "cut short. It cannot be changed while the program runs.",
        conflicts=(("options of the native allocator", "ignored with one warning"),),
        history=(((2, 0), "new"), ((2, 14), "on a failure trims its pool and tries once more")),
        example="backend:cudaMallocAsync",
        native=False,
        see=("reading-a-snapshot",),
    ),
)
