"""Pages about the numbers that torch and nvidia-smi print."""

from __future__ import annotations

from typing import Final

from oomctl.model.pages import Page

NUMBER_PAGES: Final[tuple[Page, ...]] = (
    Page(
        "",
        "reserved-vs-allocated",
        "Reserved is larger than allocated: is that a leak?",
        """No, not by itself. Reserved is what torch has taken from the driver, allocated is what tensors use of it,
and the difference is torch's cache: memory that was freed by your program and is kept for the next request,
because asking the driver is slow. Reserved 24 GiB with allocated 18 GiB means 6 GiB of cache. nvidia-smi
counts the cache as used.

A leak shows in allocated: look at it at the same point of every step (after the optimizer's step, say). If that
number climbs step by step, something keeps tensors alive. If it comes back to the same value, nothing leaks,
however large reserved is.

What the gap can be:

- Harmless: one step had a higher peak, and its memory waits for the next one. Reserved then stays flat.
- Fragmentation: the cache is cut into pieces that fit no request, so reserved climbs while allocated does not, and
in the end a request fails although the cache is larger than it.
- Another stream, a CUDA graph or a memory pool: its free memory serves nobody else.

How to tell which: after a failure, compare the gap with the request.

- gap smaller than the request, or nearly nothing: no fragmentation; allocated is too large (a leak, a peak or
simply too much for the card)
- gap much larger than the request, or a large share of the card: fragmentation is likely, and a snapshot proves it

torch.cuda.empty_cache() gives whole unused segments back to the driver, which helps other processes. It frees no
tensor, and torch does the same by itself before it gives up, so it does not cure an out-of-memory failure.

To find out: record a snapshot (`oomctl explain reading-a-snapshot`), or paste what you have:

    oomctl summary - < your.log""",
        ("four-numbers", "leak", "fragmentation", "nvidia-smi", "reading-a-snapshot"),
        ("cache", "cached", "gap", "difference", "growing", "empty_cache", "leaking", "normal", "unallocated"),
    ),
    Page(
        "",
        "four-numbers",
        "The four numbers (requested, allocated, active, reserved), and nvidia-smi",
        """From the inside out; each contains the one before it:

    requested      bytes that the program asked for (torch 2.0 and later)
      | + rounding: 512-byte steps, roundup_power2_divisions, a rest too
      |   small to split off (at most 1 MiB in a large segment)
    active         blocks that cannot be reused yet
      | + cache: free blocks inside segments
    reserved       all segments that torch took from the driver
      | + CUDA context, cuBLAS, cuDNN, NCCL, other libraries
    this process   what nvidia-smi shows for the process
      | + other processes
    used           what nvidia-smi shows for the card

allocated lies between: allocated <= active. A block is active but no longer allocated while your program has freed
it and another stream may still be using it (record_stream).

Always true: allocated <= active <= reserved <= this process <= used, and requested <= active. If your numbers break
this, they were taken at different moments or are of different devices.

A scene for each gap:

- active far above requested: rounding. Look for roundup_power2_divisions, or very many tiny tensors (each takes at
least 512 bytes).
- active above allocated: frees that wait for another stream. They pile up when the host runs far ahead of the
device.
- reserved far above active: cache; see reserved-vs-allocated.
- this process far above reserved: the CUDA context (a few hundred MiB), NCCL's buffers, libraries with allocators
of their own (vLLM, RAPIDS, TensorRT), or a second framework in the process.
- used far above this process: other processes; see nvidia-smi.

In memory_summary() the rows are Requested memory, Allocated memory, Active memory and GPU reserved memory.
Requested is missing before torch 2.0. In an error message of torch 2.4 and later "allocated by PyTorch" also counts
the free memory inside private pools (CUDA graphs); "allocated" plus "reserved but unallocated" always makes
reserved.""",
        ("reserved-vs-allocated", "nvidia-smi", "memory-summary", "error-message"),
        ("requested", "allocated", "active", "reserved", "inequality", "meaning", "difference", "numbers"),
    ),
    Page(
        "",
        "nvidia-smi",
        "nvidia-smi shows more (or less) than torch",
        """nvidia-smi sees the driver's side: everything that any process holds on the card. torch sees only what went
through its own allocator. The difference is one of these:

- torch's cache: nvidia-smi counts reserved, not allocated. Memory that your program freed still counts as used.
- the CUDA context and loaded kernels: a few hundred MiB for every process and card, before the first tensor.
- libraries that call the driver themselves: NCCL, cuBLAS and cuDNN workspaces, other frameworks.
- other processes: also zombies of an earlier run, a notebook kernel, a second user, a data loader that touched the
GPU.

"nvidia-smi says there is room, torch says out of memory" happens because

- nvidia-smi was asked later, after the failure had freed the memory
- it was another card: CUDA_VISIBLE_DEVICES renumbers, and nvidia-smi sorts by PCI bus
- a memory fraction was in force: the message then has "allowed"
- one request was larger than what is free: compare "Tried to allocate" with "is free"
- the host ran out, not the card: DefaultCPUAllocator, Killed, exit code 137

Inside a container nvidia-smi may show no processes, or only "Process N" with numbers of the host. On Windows, WSL2
and Jetson the figures per process are often not available; torch then prints 17179869184.00 GiB or an NVML
assertion.

    nvidia-smi --query-compute-apps=pid,name,used_memory --format=csv""",
        ("four-numbers", "external", "reserved-vs-allocated"),
        ("other processes", "smi", "gpustat", "nvml", "free", "room", "container", "zombie", "context"),
    ),
    Page(
        "",
        "error-message",
        "What the numbers in 'CUDA out of memory' mean",
        """    Tried to allocate X. GPU 0 has a total capacity of T of which F is
    free. Process 42 has M memory in use. Including non-PyTorch memory, this
    process has P memory in use. L allowed; Of the allocated memory A is
    allocated by PyTorch, with V allocated in private pools (e.g., CUDA
    Graphs), and U is reserved by PyTorch but unallocated.

- X is the segment that torch wanted from the driver, not the tensor: 2.00 MiB stands for any request up to 1 MiB,
20.00 MiB for any above that and below 10 MiB, else the request rounded up to 2 MiB. A small X says only that the
card was full.
- F is free on the device after torch had given back its unused segments.
- L appears when a memory fraction is set; then L is the limit, not T.
- A + U is reserved. From torch 2.4 on A also counts V, memory that lies idle in the pools of CUDA graphs.
- P - (A + U) is this process outside torch: context, NCCL, other libraries.
- T - F - P is other processes.

How to read it:

- U much larger than X, and a large share of the card: fragmentation. U a little larger than a small X proves
nothing, since nearly every full card has that much.
- U small, A nearly T: the card is full of tensors: a leak, a peak or too much.
- T - F - P large: somebody else holds the card.
- F larger than X: a fraction limit, a graph capture, or the figures changed meanwhile.

Up to torch 2.0 the same message says "A already allocated" and "R reserved in total by PyTorch"; there U is R - A.
The hint at its end (max_split_size_mb, expandable_segments) is printed every time and says nothing about your case.

    oomctl summary - < your.log""",
        ("four-numbers", "reserved-vs-allocated", "external"),
        (
            "tried to allocate",
            "out of memory",
            "message",
            "total capacity",
            "unallocated",
            "non-pytorch",
            "hint",
            "log",
        ),
    ),
    Page(
        "",
        "memory-summary",
        "Reading torch.cuda.memory_summary()",
        """Four columns: Cur Usage (now), Peak Usage (highest since the last reset), Tot Alloc and Tot Freed (sums
since the start; they only say how busy the allocator was). Below each total stand the large pool (requests
above 1 MiB) and the small pool.

Read it in this order:

- CUDA OOMs and cudaMalloc retries in the head. A retry is a flush of the whole cache; retries without OOMs mean
that torch got by, slowly: the card is nearly full or fragmented.
- Allocated memory, Cur against Peak. Cur near Peak at the end of a step: everything is kept. Cur far below: a peak
within the step.
- GPU reserved memory minus Active memory: the cache. Large and not shrinking: see Non-releasable.
- Non-releasable memory: free pieces in segments that also hold live blocks, which no flush can return. Large, and a
large share of the card: fragmentation.
- Requested memory against Active memory: what rounding costs.
- Allocations against Active allocs: frees that wait for another stream.

The small pool matters when its reserved memory is large: thousands of tiny tensors.

With expandable_segments the rows Non-releasable and GPU reserved segments leave expandable memory out, so they
understate fragmentation: use reserved minus active. torch prints one unit per block of rows and rounds down, so
rows need not add up to the last digit, and KB or KiB both mean 1024 bytes. The memory_stats() keys behind the rows
are allocated_bytes, active_bytes, requested_bytes, reserved_bytes, inactive_split_bytes.

Print it in the except branch, right after the failure; a summary of a healthy moment says nothing about it.""",
        ("four-numbers", "fragmentation", "reserved-vs-allocated"),
        ("memory_summary", "summary", "table", "rows", "non-releasable", "retries", "memory_stats", "columns"),
    ),
)
