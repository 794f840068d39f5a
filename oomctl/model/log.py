"""What text inputs prove: messages, tables, counters, series, processes, tracebacks, other signs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oomctl.model.common import Skipped, VersionRange
from oomctl.model.stacks import Frame


@dataclass(frozen=True, slots=True)
class OomEvent:
    """One failure. Sizes in bytes as printed (decimal times 1024^k); None is unknown, never 0.

    Attributes:
        backend: cuda, hip, xpu, mps, npu or host.
        gpu: Device ordinal of the message.
        rank: Rank or worker that printed it.
        tried_to_allocate: "Tried to allocate X": the *segment* size of the request in messages; in an event that comes
            from a trace, the rounded request.
        total_capacity: Of the device.
        free: Device free memory (cudaMemGetInfo), after the cache flush.
        allocated: "allocated by PyTorch"; from torch 2.4 it includes idle private-pool memory.
        reserved: "reserved in total by PyTorch" (torch <= 2.0), else None.
        reserved_unallocated: "reserved by PyTorch but unallocated" (torch >= 2.1).
        cached_unallocated: "cached" (torch <= 1.3).
        private_pools: Idle bytes in private pools (torch >= 2.4).
        allowed: Fraction limit.
        this_process_in_use: "this process has".
        process_in_use: First "Process N has".
        process_pid: Its N.
        processes: All "Process N has M" clauses as (pid, bytes).
        other_allocations: MPS.
        max_allowed: MPS.
        recovered: True when the program went on.
        wording: Which family of messages it is, for example "torch 2.2-2.3", "cudaMallocAsync", "cublas_alloc_failed".
        torch: Versions that print it.
        line: 1-based line of the input where it starts; 0 for an event from a trace.
        source: Index into `Evidence.inputs`.
        time_us: Microseconds since the epoch where known.
        traceback: Frames of the traceback that ends in it, innermost first.
        text: The message itself, cleaned, at most 2,000 characters.
        code: Source line of each frame of `traceback`, "" where the text shows none.
    """

    backend: str = "cuda"
    gpu: int | None = None
    rank: int | None = None
    tried_to_allocate: int | None = None
    total_capacity: int | None = None
    free: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    reserved_unallocated: int | None = None
    cached_unallocated: int | None = None
    private_pools: int | None = None
    allowed: int | None = None
    this_process_in_use: int | None = None
    process_in_use: int | None = None
    process_pid: int | None = None
    processes: tuple[tuple[int, int], ...] = ()
    other_allocations: int | None = None
    max_allowed: int | None = None
    recovered: bool = False
    wording: str = ""
    torch: VersionRange = VersionRange()
    line: int = 0
    source: int = 0
    time_us: int | None = None
    traceback: tuple[Frame, ...] = ()
    text: str = ""
    code: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SummaryCell:
    """One row of a memory_summary table: bytes or counts; None where the text was cut."""

    cur: int | None
    peak: int | None
    total_alloc: int | None
    total_freed: int | None


@dataclass(frozen=True, slots=True)
class MemorySummary:
    """A `torch.cuda.memory_summary()` table.

    Attributes:
        device: Device ordinal of the head line; None in a headless fragment.
        num_ooms: "CUDA OOMs".
        num_alloc_retries: "cudaMalloc retries".
        truncated: Rows are missing or cut.
        rows: Metric label -> "all" | "large" | "small" -> cells.
        unit_style: "KiB" (torch >= 2.0) or "KB".
        line: 1-based line where it starts.
        source: Index into `Evidence.inputs`.
        rank: Rank that printed it.
    """

    device: int | None
    num_ooms: int | None
    num_alloc_retries: int | None
    truncated: bool
    rows: Mapping[str, Mapping[str, SummaryCell]]
    unit_style: str = "KiB"
    line: int = 0
    source: int = 0
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """`torch.cuda.memory_stats()` as JSON or printed dict: flat key -> number."""

    values: Mapping[str, int]
    line: int = 0
    source: int = 0
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """A quantity printed again and again.

    Attributes:
        name: As printed, for example "alloc", "MA", "rss_mb".
        meaning: allocated, reserved, used, peak, host or unknown.
        steps: Step, iteration or line number of each point.
        values: Bytes at each point.
        line: 1-based line of the first point.
        source: Index into `Evidence.inputs`.
        rank: Rank that printed it.
    """

    name: str
    meaning: str
    steps: tuple[float, ...]
    values: tuple[int, ...]
    line: int = 0
    source: int = 0
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class SmiProcess:
    """One row of nvidia-smi's process list; memory in bytes."""

    gpu: int | None
    pid: int | None
    name: str
    used: int | None


@dataclass(frozen=True, slots=True)
class SmiDevice:
    """One card in an nvidia-smi table; memory in bytes."""

    gpu: int
    name: str
    used: int
    total: int


@dataclass(frozen=True, slots=True)
class SmiTable:
    """An nvidia-smi print."""

    devices: tuple[SmiDevice, ...]
    processes: tuple[SmiProcess, ...]
    line: int = 0
    source: int = 0


@dataclass(frozen=True, slots=True)
class Sign:
    """Another line that bears on the verdict.

    Attributes:
        kind: Slug, for example "host_killed", "cgroup_oom", "cpu_allocator", "cublas_alloc_failed", "index_assert",
            "jax_oom", "tensorflow_oom", "vllm_no_cache_blocks".
        text: The line, cleaned, at most 500 characters.
        line: 1-based line.
        source: Index into `Evidence.inputs`.
        size: Bytes that the line names, for example the host allocation that failed.
        rank: Rank that printed it.
        count: A number that the line names, for example the last step before a failure.
    """

    kind: str
    text: str
    line: int = 0
    source: int = 0
    size: int | None = None
    rank: int | None = None
    count: int | None = None


@dataclass(frozen=True, slots=True)
class TextFindings:
    """What one text input holds.

    Attributes:
        oom_events: One per distinct failure, in order of time.
        memory_summaries: Tables in order of appearance.
        memory_stats: Counters in order of appearance.
        series: Printed series, in order of their first point.
        smi: nvidia-smi prints.
        signs: Other lines that bear on the verdict, in order of appearance.
        tracebacks: Tracebacks that end in no recognised failure, innermost frame first.
        conf: Last settings string of the allocator that the text shows in force, or None.
        torch: Versions that agree with all of it.
        skipped: What could not be read, and why.
        kind: oom_log, memory_summary, memory_stats, series, nvidia_smi, traceback or unknown.
    """

    oom_events: tuple[OomEvent, ...] = ()
    memory_summaries: tuple[MemorySummary, ...] = ()
    memory_stats: tuple[MemoryStats, ...] = ()
    series: tuple[Series, ...] = ()
    smi: tuple[SmiTable, ...] = ()
    signs: tuple[Sign, ...] = ()
    tracebacks: tuple[tuple[Frame, ...], ...] = ()
    conf: str | None = None
    torch: VersionRange = VersionRange()
    skipped: tuple[Skipped, ...] = ()
    kind: str = "unknown"
