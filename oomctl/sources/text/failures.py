"""Failures without allocator figures: the driver, libraries, the host, other frameworks. Recognised, named, and kept apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from oomctl.model.common import VersionRange
from oomctl.model.log import OomEvent, Sign
from oomctl.sources.text.base import Findings, Passage, RawEvent
from oomctl.units import parse_size


@dataclass(frozen=True, slots=True)
class Kind:
    """A wording.

    Attributes:
        slug: Name of the sign, and the event's wording.
        pattern: On text without white space; a group "size" holds bytes or a size with a unit.
        event: Whether it is a failed allocation in its own right.
        backend: Of the event.
        weak: Only counts as an event where the text holds no better one (a class name, a remark about a failure).
        torch: Versions that print it.
    """

    slug: str
    pattern: re.Pattern[str]
    event: bool = False
    backend: str = "cuda"
    weak: bool = False
    torch: VersionRange = VersionRange()


def _kind(
    slug: str,
    pattern: str,
    event: bool = False,
    backend: str = "cuda",
    weak: bool = False,
    torch: VersionRange | None = None,
    flags: re.RegexFlag = re.IGNORECASE,
) -> Kind:
    return Kind(slug, re.compile(pattern, flags), event, backend, weak, torch or VersionRange())


_N: Final = r"(?P<size>\d[\d.,]*(?:[KMGT]i?B)?)"

KINDS: Final = (
    # The caching allocator without its figures.
    _kind("async_message_cut", r"Allocationondevice(?!\d+would|would)\d?", True, torch=VersionRange((2, 3), None)),
    _kind(
        "nvml_assert",
        r"NVML_SUCCESS==r?INTERNALASSERT|NVML_SUCCESS==rINTERNAL",
        True,
        torch=VersionRange((1, 13), (2, 13)),
    ),
    _kind("message_cut", r"(?:CUDA|HIP|XPU|NPU)outofmemory(?!\.?Triedto|\.?Allocationwas)", True, weak=True),
    # The driver and libraries beside the caching allocator.
    _kind("driver_oom", r"CUDAdrivererror:outofmemory", True, torch=VersionRange((2, 1), None)),
    _kind("cuda_error_oom", r"(?:CUDA|HIP)error:(?:outofmemory|hipErrorOutOfMemory)", True),
    _kind(
        "thc_oom",
        r"cudaruntimeerror\(2\):outofmemory|THCudaCheckFAIL\S{0,200}?error=2:outofmemory",
        True,
        torch=VersionRange(None, (1, 4)),
    ),
    _kind("cuda_error_oom", r"cudaErrorMemoryAllocation(?!\'in)|CUDA_ERROR_OUT_OF_MEMORY", True, weak=True),
    _kind("nccl_alloc", rf"FailedtoCUDA(?:calloc|malloc|hostalloc)(?:async)?{_N}?(?:bytes)?", True),
    _kind("nccl_alloc", r"Cudafailure(?:2)?'outofmemory'", True, weak=True),
    _kind("cublas_alloc_failed", r"CUBLAS_STATUS_ALLOC_FAILED", True),
    _kind(
        "cusolver_alloc_failed",
        r"CUSOLVER_STATUS_ALLOC_FAILED|CUSPARSE_STATUS_(?:ALLOC_FAILED|INSUFFICIENT_RESOURCES)|CUFFT_ALLOC_FAILED",
        True,
    ),
    _kind("cudnn_alloc_failed", r"CUDNN_STATUS_(?:ALLOC_FAILED|INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)", True),
    _kind(
        "level_zero_oom",
        r"UR_RESULT_ERROR_OUT_OF_(?:DEVICE_MEMORY|RESOURCES)|PI_ERROR_OUT_OF_(?:RESOURCES|HOST_MEMORY)|ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        True,
        "xpu",
    ),
    # Perhaps an out-of-memory in disguise.
    _kind(
        "library_maybe_oom",
        r"CUDNN_STATUS_NOT_SUPPORTED|UnabletofindavalidcuDNNalgorithm|FIND(?:/GET)?wasunabletofindanengine|mha_graph\.?->?execute|CUBLAS_STATUS_NOT_INITIALIZED|CUDNN_STATUS_NOT_INITIALIZED",
    ),
    # torch 2.13 and later: one line for each refusal of the driver; without an exception it was a retry that worked.
    _kind("driver_refused", r"memory(?:allocation|mapping)failedwithOOMondevice", torch=VersionRange((2, 13), None)),
    _kind("preemptive_rejection_notice", r"Preemptivelyrejectingallocation", torch=VersionRange((2, 12), None)),
    # Other frameworks.
    _kind("jax_oom", rf"Outofmemory(?:whiletryingto|)allocat(?:e|ing){_N}(?:bytes)?", True),
    _kind(
        "jax_oom",
        r"RESOURCE_EXHAUSTED:|XlaRuntimeError:RESOURCE|Ranoutofmemoryinmemoryspace(?:hbm|vmem)",
        True,
        weak=True,
    ),
    _kind(
        "tensorflow_oom",
        r"OOMwhenallocatingtensor|ResourceExhaustedError|tensorflow\S{0,80}failedtoallocate",
        True,
        weak=True,
    ),
    _kind(
        "vllm_no_cache_blocks",
        r"Noavailablememoryforthecacheblocks|(?:islargerthanthemaximumnumberoftokensthatcanbestoredinKVcache)|KVcacheisneeded,whichislargerthantheavailableKVcachememory",
    ),
    _kind(
        "vllm_startup_memory", r"Freememoryondevice\S{0,80}islessthandesiredGPUmemoryutilization|Errorinmemoryprofiling"
    ),
    _kind(
        "sglang_no_memory",
        r"Notenoughmemory\.?Pleasetrytoincrease--mem-fraction-static|RuntimeError:Notenoughmemory\.Pleasetry",
    ),
    _kind(
        "llamacpp_oom",
        r"ggml_backend_cuda_buffer_type_alloc_buffer:|ggml_cuda_device_malloc|cudaMallocfailed:outofmemory",
        True,
        weak=True,
    ),
    # The host.
    _kind(
        "cpu_allocator", rf"DefaultCPUAllocator:?(?:can'?t|not|unable)\S{{0,60}}?triedtoallocate{_N}bytes", True, "host"
    ),
    _kind("cpu_allocator", r"DefaultCPUAllocator:(?:can'?tallocatememory|notenoughmemory)", True, "host", weak=True),
    _kind(
        "host_alloc_failed",
        rf"Unabletoallocate{_N}foranarray",
        True,
        "host",
    ),
    _kind(
        "host_alloc_failed",
        r"std::bad_alloc|(?<![A-Za-z])(?:_Array)?MemoryError(?=:|$)|Cannotallocatememory(?!block)|Errno12\]",
        True,
        "host",
        weak=True,
    ),
    _kind(
        "pinned_failed",
        r"Mallocpinmemoryfailed|cudaHostAlloc\S{0,40}outofmemory|CachingHostAllocator\S{0,160}outofmemory",
        True,
        "host",
        weak=True,
    ),
    _kind(
        "shm",
        r"insufficientsharedmemory|busy?error:|Unabletowritetofile</torch_|unabletoopensharedmemoryobject|Nospaceleftondevice\S{0,30}shm",
    ),
    _kind(
        "cgroup_oom",
        r"Memorycgroupoutofmemory|cgroupout-?of-?memory|oom-killevent|oom_kill_process|ExceededjobmemorylimitatSTEP|memory\.max",
    ),
    _kind("kernel_oom", r"Outofmemory:Kill(?:ed)?process|invokedoom-killer|oom-kill:constraint|oom_reaper"),
    _kind(
        "host_killed",
        r"killedbysignal:?(?:Killed|9)|OOMKilled|diedwith<Signals\.SIGKILL|Signal9\(SIGKILL\)|exit(?:ed)?(?:with)?code:?-?(?:9|137)\b|exitcode:?-9\b|exitcode137|reason:\"?OOM",
    ),
    _kind(
        "ray_memory_monitor",
        r"killedduetomemorypressure|Workers?\(tasks/actors\)killed|OutOfMemoryError:Task(?:was)?killed|Task(?:was|failed)?\S{0,20}killedduetothenoderunninglowonmemory|memoryonthenode\S{0,120}wasat?",
    ),
    # No memory problem, or one that only looks like it.
    _kind(
        "index_assert",
        r"device-sideasserttriggered|indexoutofrangeinself|Assertion`?(?:srcIndex<srcSelectDimSize|t>=0&&t<n_classes|ind>=0&&|idx_dim>=0|index>=-sizes)|indexoutofbounds",
    ),
    _kind(
        "illegal_access", r"illegalmemoryaccess|CUDA_ERROR_ILLEGAL_ADDRESS|misalignedaddress|unspecifiedlaunchfailure"
    ),
    _kind(
        "shape_error",
        r"sizemismatch|mat1andmat2shapescannotbemultiplied|sizesoftensorsmustmatch|shape'\[[\d,-]+\]'isinvalid|Thesizeoftensora\(",
    ),
    _kind(
        "no_kernel",
        r"nokernelimageisavailable|CUDAdriverversionisinsufficient|invaliddeviceordinal|NotImplementedError:CouldnotrunoperatorMPS",
    ),
    _kind(
        "dtype_error", r"expectedscalartype|Inputtype\(\S{0,60}\)andweighttype|Expectedalltensorstobeonthesamedevice"
    ),
    _kind("nccl_timeout", r"Watchdogcaughtcollectiveoperationtimeout|NCCLtimeout|collectiveoperationtimeout"),
    # What the program said about itself.
    _kind(
        "recovering",
        r"attemptingtorecoverfromOOM|retryingbatch|retryingwith|retryingwithtiled|ranoutofmemory,(?:skipping|retry)|skipp?(?:ing|ed)(?:this)?batch|reducingbatchsize|halvingbatchsize|decreasingbatchsize|Tryingagainwith|switchingtotiled|continu(?:e|ing)training",
    ),
    _kind(
        "said_oom",
        r"(?:CUDA|GPU)runoutofmemory|ranoutofmemoryon(?:your|the)GPU|(?:CUDA|GPU)(?:ran|hasrun)outofmemory",
        True,
        weak=True,
    ),
    _kind(
        "exception_name", r"(?:torch\.(?:cuda\.)?|RayTaskError\(|ExceptionType:\**)OutOfMemoryError", True, weak=True
    ),
    _kind(
        "graph_capture",
        r"capture_end\(\)|cudaGraphInstantiate|instantiatecudagraph|CUDAgraphcapture(?:failed)|cudaStreamEndCapture",
    ),
    _kind("mem_get_info", r"cudaMemGetInfo|mem_get_info"),
    _kind("trial", r"[Tt]rial#?\d+(?=[\w:,]|failed|as)"),
    _kind("deepspeed_killing", r"Killingsubprocess\d+"),
)
"""In order of preference; of several that start on the same line only the first becomes an event."""

_KILLED_ALONE: Final = re.compile(r"^\s*(?:.*line \d+:\s*)?\d*\s*Killed(?:\s+\S.*)?\s*$")
_RSS: Final = re.compile(r"anon-rss:(\d+)kB", re.I)
_EVENTS_ONLY: Final = ("message_cut", "exception_name", "said_oom")
_HOST: Final = ("cpu_allocator", "host_alloc_failed", "pinned_failed")


class Failures:
    """Reads failures without figures, and signs."""

    slug = "failures"

    def read(self, passage: Passage, found: Findings) -> None:
        """Adds signs, and raw events for failed allocations."""
        seen: set[tuple[str, int]] = set()
        taken: set[int] = set()  # identities of lines
        for squeezed in passage.squeezed:
            for kind in KINDS:
                for match in kind.pattern.finditer(squeezed.text):
                    line = squeezed.line(match.start())
                    key = (kind.slug, id(line))
                    if key in seen or not passage.stretch.accepts(line.no):
                        continue
                    seen.add(key)
                    size = _size(match)
                    text = line.text.strip()[:500]
                    if kind.slug not in _EVENTS_ONLY and found.room("signs", len(found.signs)):
                        rank = line.rank if line.rank is not None else found.rank
                        found.signs.append(Sign(kind.slug, text, line.no, found.source, size, rank))
                    if not kind.event or (kind.weak and id(line) in taken):
                        continue
                    taken.add(id(line))
                    event = OomEvent(
                        backend=kind.backend,
                        rank=line.rank if line.rank is not None else found.rank,
                        tried_to_allocate=size,
                        wording=kind.slug,
                        torch=kind.torch,
                        line=line.no,
                        source=found.source,
                        text=text,
                    )
                    if found.room("messages", len(found.events)):
                        found.events.append(
                            RawEvent(
                                event,
                                numbered=size is not None,
                                tag=line.tag,
                                time=line.time,
                                host=kind.slug in _HOST,
                                weak=kind.weak,
                                end=line.no,
                                part=line.part,
                            )
                        )
        for line in passage.lines:
            if "Killed" in line.full and _KILLED_ALONE.match(line.full) and passage.stretch.accepts(line.no):
                found.signs.append(Sign("host_killed", line.full.strip()[:500], line.no, found.source, None, line.rank))
            rss = _RSS.search(line.text)
            if rss and passage.stretch.accepts(line.no):
                found.signs.append(
                    Sign("killed_rss", line.text.strip()[:500], line.no, found.source, int(rss[1]) * 1024, line.rank)
                )


def _size(match: re.Match[str]) -> int | None:
    text = match.groupdict().get("size")
    if not text:
        return None
    try:
        return parse_size(text.rstrip(".,"))
    except ValueError:
        return None
