"""Wordings that name a failure without the allocator's figures, or a fact that bears on one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from oomctl.model.common import VersionRange


@dataclass(frozen=True, slots=True)
class Kind:
    """A wording.

    Attributes:
        slug: Name of the sign, and the event's wording.
        needs: Lower-case words of which the text must hold one; a quick test before the pattern.
        pattern: On text without white space, case ignored; a group "size" holds bytes or a size with a unit.
        event: Whether it is a failed allocation in its own right.
        backend: Of the event.
        weak: Only counts as an event where the text holds no better one (a class name, a remark about a failure).
        torch: Versions that print it.
    """

    slug: str
    needs: tuple[str, ...]
    pattern: re.Pattern[str]
    event: bool = False
    backend: str = "cuda"
    weak: bool = False
    torch: VersionRange = VersionRange()


_N: Final = r"(?P<size>\d[\d.,]*(?:[KMGT]i?B)?)"


def _sign(slug: str, needs: str, *patterns: str) -> Kind:
    return Kind(slug, tuple(needs.split()), re.compile("|".join(patterns), re.IGNORECASE))


def _event(
    slug: str,
    needs: str,
    *patterns: str,
    backend: str = "cuda",
    weak: bool = False,
    torch: tuple[tuple[int, int] | None, tuple[int, int] | None] = (None, None),
) -> Kind:
    pattern = re.compile("|".join(patterns), re.IGNORECASE)
    return Kind(slug, tuple(needs.split()), pattern, True, backend, weak, VersionRange(*torch))


KINDS: Final = (
    # The caching allocator without its figures.
    _event("async_message_cut", "allocationondevice", r"Allocationondevice(?!\d+would|would)\d?", torch=((2, 3), None)),
    _event("nvml_assert", "nvml_success", r"NVML_SUCCESS==r?INTERNAL", torch=((1, 13), (2, 13))),
    _event(
        "message_cut",
        "outofmemory",
        r"(?:CUDA|HIP|XPU|NPU)outofmemory(?!\.?Triedto|\.?Allocationwas)",
        weak=True,
    ),
    # Host memory that CUDA locks: before the driver's wordings, which stand on the same line.
    _event(
        "pinned_failed",
        "pinned onhost",
        rf"failedtoalloc(?:ate)?{_N}(?:bytes)?(?:ofpinnedmemory|onhost)",
        backend="host",
    ),
    _event(
        "pinned_failed",
        "pinnedhost",
        rf"couldnotallocatepinnedhostmemory(?:ofsize:?{_N})?",
        backend="host",
        weak=True,
    ),
    # Pools of other libraries, whose classes are named as the host's are.
    _event(
        "rmm_oom",
        "rmm",
        r"bad_alloc:(?:out_of_memory:)?RMM\w*failure",
        r"RMM_ERROR_OUT_OF_MEMORY",
        weak=True,
    ),
    _event(
        "cupy_oom",
        "cupy allocatedsofar",
        rf"(?:cupy\S{{0,40}}OutOfMemoryError:?)?Outofmemoryallocating{_N}bytes\(allocatedsofar",
        r"cupy\S{0,40}OutOfMemoryError",
    ),
    _event(
        "onnx_oom",
        "bfcarena",
        rf"BFCArena::AllocateRawInternal\S{{0,160}}?Failedtoallocatememoryforrequestedbufferofsize{_N}",
        weak=True,
    ),
    _event(
        "paddle_oom",
        "outofmemoryerroron",
        rf"Outofmemoryerroron[GX]PU\d+\.Cannotallocate{_N}(?:[GX]PU)?memory",
        weak=True,
    ),
    _event(
        "mxnet_oom",
        "storage_manager mxneterror",
        r"(?:pooled_storage_manager|MXNetError)\S{0,60}?cudaMalloc(?:retry)?failed:outofmemory",
        weak=True,
    ),
    _event(
        "tensorrt_oom",
        "couldnotbeallocated",
        rf"Requestedamountof(?:GPU)?memory\({_N}bytes\)couldnotbeallocated",
        weak=True,
    ),
    _event(
        "tensorrt_oom",
        "errorcode errorinallocate nvinfer1",
        r"ErrorCode[12]:(?:OutOfMemory|CudaRuntime\(outofmemory\))",
        r"OutOfMemoryErrorinallocate",
        r"CudaErrorin(?:nvinfer1\S{0,60}?)?allocate:2\(outofmemory\)",
        weak=True,
    ),
    # The driver and libraries beside the caching allocator.
    _event("driver_oom", "drivererror", r"CUDAdrivererror:outofmemory", torch=((2, 1), None)),
    _event("cuda_error_oom", "error:", r"(?:CUDA|HIP)error:(?:outofmemory|hipErrorOutOfMemory)"),
    # By number, as programs print it that check the runtime's result themselves.
    _event(
        "cuda_error_oom",
        "error2 error:2 triggeredinternally failedwitherror erroroutofmemory",
        r"(?:CUDA|HIP)(?:failedwith)?(?:error){1,2}:?2(?!\d)\S{0,60}?outofmemory",
        r"(?:CUDA|HIP)failedwitherror:?outofmemory",
        r"Erroroutofmemoryatline\d+infile",
        r"outofmemory\(Triggeredinternallyat",
    ),
    _event(
        "thc_oom",
        "runtimeerror(2) thcudacheck",
        r"cudaruntimeerror\(2\):outofmemory",
        r"THCudaCheckFAIL\S{0,200}?error=2:outofmemory",
        torch=(None, (1, 4)),
    ),
    _event(
        "cuda_error_oom",
        "cudaerrormemoryallocation cuda_error_out_of",
        r"cudaErrorMemoryAllocation(?!\'in)",
        r"CUDA_ERROR_OUT_OF_MEMORY",
        weak=True,
    ),
    _event("nccl_alloc", "failedtocuda", rf"FailedtoCUDA(?:calloc|malloc|hostalloc)(?:async)?{_N}?(?:bytes)?"),
    _event("nccl_alloc", "cudafailure", r"Cudafailure(?:2)?'outofmemory'", weak=True),
    _event("cublas_alloc_failed", "cublas", r"CUBLAS_STATUS_ALLOC_FAILED"),
    _event(
        "cusolver_alloc_failed",
        "cusolver cusparse cufft",
        r"CUSOLVER_STATUS_ALLOC_FAILED",
        r"CUSPARSE_STATUS_(?:ALLOC_FAILED|INSUFFICIENT_RESOURCES)",
        r"CUFFT_ALLOC_FAILED",
    ),
    _event("cudnn_alloc_failed", "cudnn", r"CUDNN_STATUS_(?:ALLOC_FAILED|INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)"),
    _event(
        "level_zero_oom",
        "_error_out_of",
        r"UR_RESULT_ERROR_OUT_OF_(?:DEVICE_MEMORY|RESOURCES)",
        r"PI_ERROR_OUT_OF_(?:RESOURCES|HOST_MEMORY)",
        r"ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
        backend="xpu",
    ),
    # Perhaps an out-of-memory in disguise.
    _sign(
        "library_maybe_oom",
        "cudnn cublas findanengine mha_graph",
        r"CUDNN_STATUS_NOT_SUPPORTED",
        r"UnabletofindavalidcuDNNalgorithm",
        r"unabletofindanengine",
        r"mha_graph\.?(?:->)?execute",
        r"CU(?:BLAS|DNN)_STATUS_NOT_INITIALIZED",
    ),
    # torch 2.13 and later: one line for each refusal of the driver; without an exception it was a retry that worked.
    _sign("driver_refused", "failedwithoom", r"memory(?:allocation|mapping)failedwithOOMondevice"),
    _sign("preemptive_rejection_notice", "preemptively", r"Preemptivelyrejectingallocation"),
    # Other frameworks.
    _event(
        "jax_oom",
        "outofmemory",
        rf"Outofmemory(?:whiletryingto|)allocat(?:e|ing){_N}(?![\d,.]|(?:bytes)?\(allocatedsofar)(?:bytes)?",
    ),
    _event(
        "jax_oom",
        "resource_exhausted xlaruntime inmemoryspace",
        r"RESOURCE_EXHAUSTED:",
        r"XlaRuntimeError:RESOURCE",
        r"Ranoutofmemoryinmemoryspace(?:hbm|vmem)",
        weak=True,
    ),
    _event(
        "tensorflow_oom",
        "oomwhenallocating resourceexhausted tensorflow",
        r"OOMwhenallocatingtensor",
        r"ResourceExhaustedError(?!:?Outofmemoryerroron)",  # PaddlePaddle's has the same name
        r"tensorflow\S{0,80}failedtoallocate",
        weak=True,
    ),
    _sign(
        "vllm_no_cache_blocks",
        "cacheblocks kvcache",
        r"Noavailablememoryforthecacheblocks",
        r"islargerthanthemaximumnumberoftokensthatcanbestoredinKVcache",
        r"KVcacheisneeded,whichislargerthantheavailableKVcachememory",
    ),
    _sign(
        "vllm_startup_memory",
        "freememoryondevice memoryprofiling",
        r"Freememoryondevice\S{0,80}islessthandesiredGPUmemoryutilization",
        r"Errorinmemoryprofiling",
    ),
    _sign(
        "sglang_no_memory",
        "notenoughmemory",
        r"Notenoughmemory\.?Pleasetry(?:toincrease)?",
    ),
    _event(
        "llamacpp_oom",
        "ggml cudamallocfailed",
        rf"ggml_backend_cuda_buffer_type_alloc_buffer:allocating{_N}ondevice",
        r"ggml_backend_cuda_buffer_type_alloc_buffer:",
        r"ggml_cuda_device_malloc",
        r"ggml\S{0,120}?cudaMallocfailed:outofmemory",
        weak=True,
    ),
    # Whoever checks the runtime's result: the name of the program is not in the message.
    _event("cuda_error_oom", "cudamalloc", r"cuda(?:Malloc|AllocMapped)\w*(?:retry)?failed:outofmemory", weak=True),
    # The host.
    _event(
        "cpu_allocator",
        "defaultcpuallocator",
        rf"DefaultCPUAllocator:?(?:can'?t|not|unable)\S{{0,60}}?triedtoallocate{_N}bytes",
        backend="host",
    ),
    # The CPU allocator of torch 1.0 and before.
    _event(
        "cpu_allocator",
        "buynewram posix_memalign",
        rf"notenoughmemory:youtriedtoallocate{_N}\.?BuynewRAM",
        r"enforcefailat\[?CPUAllocator\S{0,80}posix_memalign\(",
        backend="host",
        torch=(None, (1, 2)),
    ),
    _event(
        "cpu_allocator",
        "defaultcpuallocator",
        r"DefaultCPUAllocator:(?:can'?tallocatememory|notenoughmemory)",
        backend="host",
        weak=True,
    ),
    _event("host_alloc_failed", "unabletoallocate", rf"Unabletoallocate{_N}foranarray", backend="host"),
    _event(
        "host_alloc_failed",
        "bad_alloc memoryerror cannotallocate errno12]",
        r"std::bad_alloc(?!:(?:out_of_memory:)?(?:RMM|CUDA))",
        r"(?<!OutOf)(?:_Array)?MemoryError(?![a-z(])",
        r"Cannotallocatememory(?!block)",
        r"Errno12\]",
        backend="host",
        weak=True,
    ),
    _event(
        "pinned_failed",
        "pinmemory cudahostalloc cachinghostallocator",
        r"Mallocpinmemoryfailed",
        r"cudaHostAlloc\S{0,40}outofmemory",
        r"CachingHostAllocator\S{0,160}outofmemory",
        backend="host",
        weak=True,
    ),
    _sign(
        "shm",
        "sharedmemory buserror torch_",
        r"insufficientsharedmemory",
        r"outofsharedmemory",
        r"buserror",
        r"Unabletowritetofile</torch_",
        r"unabletoopensharedmemoryobject",
    ),
    _sign(
        "cgroup_oom",
        "cgroup oom-killevent oom_kill exceededjobmemory memory.max",
        r"Memorycgroupoutofmemory",
        r"cgroupout-?of-?memory",
        r"oom-killevent",
        r"oom_kill_process",
        r"ExceededjobmemorylimitatSTEP",
        r"exceeded(?:step|job)memorylimit",
        r"memory\.max",
    ),
    _sign(
        "kernel_oom",
        "killprocess killedprocess oom-kill oom_reaper",
        r"Outofmemory:Kill(?:ed)?process",
        r"invokedoom-killer",
        r"oom-kill:constraint",
        r"oom_reaper",
    ),
    _sign(
        "host_killed",
        "killed sigkill exitcode exit",
        r"killedbysignal:?(?:Killed|9)",
        r"OOMKilled",
        r"diedwith<Signals\.SIGKILL",
        r"Signal9\(SIGKILL\)",
        r"exit(?:ed)?(?:with)?code:?-?(?:9|137)(?!\d)",
        r"reason:\"?OOM",
    ),
    _sign("worker_gone", "exitedunexpectedly", r"DataLoaderworker\S{0,80}exitedunexpectedly"),
    _sign(
        "ray_memory_monitor",
        "memorypressure workers taskwaskilled runninglowonmemory",
        r"killedduetomemorypressure",
        r"Workers?\(tasks/actors\)killed",
        r"killedduetothenoderunninglowonmemory",
        r"OutOfMemoryError:Task(?:was)?killed",
    ),
    # No memory problem, or one that only looks like it.
    _sign(
        "index_assert",
        "device-sideassert indexoutof assertion",
        r"device-sideasserttriggered",
        r"indexoutofrangeinself",
        r"indexoutofbounds",
        r"Assertion`?(?:srcIndex<srcSelectDimSize|t>=0&&t<n_classes|ind>=0&&|idx_dim>=0|index>=-sizes)",
    ),
    _sign(
        "illegal_access",
        "illegal misaligned unspecifiedlaunch",
        r"illegalmemoryaccess",
        r"CUDA_ERROR_ILLEGAL_ADDRESS",
        r"misalignedaddress",
        r"unspecifiedlaunchfailure",
    ),
    _sign(
        "shape_error",
        "sizemismatch mat1and sizesoftensors isinvalid sizeoftensor",
        r"sizemismatch",
        r"mat1andmat2shapescannotbemultiplied",
        r"sizesoftensorsmustmatch",
        r"shape'\[[\d,-]+\]'isinvalid",
        r"Thesizeoftensora\(",
    ),
    _sign(
        "no_kernel",
        "kernelimage driverversion deviceordinal couldnotrun",
        r"nokernelimageisavailable",
        r"CUDAdriverversionisinsufficient",
        r"invaliddeviceordinal",
        r"Couldnotrun'?\S{0,60}witharguments",
    ),
    _sign(
        "dtype_error",
        "scalartype inputtype samedevice",
        r"expectedscalartype",
        r"Inputtype\(\S{0,60}\)andweighttype",
        r"Expectedalltensorstobeonthesamedevice",
    ),
    _sign(
        "file_error",
        "filenotfound corrupt unpickling centraldirectory permissionerror nospaceleft",
        r"FileNotFoundError",
        r"UnpicklingError",
        r"failedfindingcentraldirectory",
        r"invalidheaderorarchiveiscorrupted",
        r"PermissionError",
        r"Nospaceleftondevice",
    ),
    _sign("kernel_resources", "outofresource", r"outofresources?:(?:sharedmemory|registers|threads|tensormemory)"),
    _sign("worker_crashed", "killedbysignal", r"killedbysignal:?(?:Segmentationfault|Illegalinstruction)"),
    _sign(
        "workspace_too_small",
        "alignedallocator",
        r"Failedtoallocatememoryfor\S{1,80}withsize\d+andalignment\d+inAlignedAllocator",
    ),
    _sign("internal_assert", "internalassert", r"(?<!NVML_SUCCESS==r)(?<!NVML_SUCCESS==)INTERNALASSERTFAILED"),
    _sign("nccl_timeout", "timeout", r"(?:Watchdogcaught)?collectiveoperationtimeout", r"NCCLtimeout"),
    # What the program said about itself.
    _sign(
        "recovering",
        "recover retry skip batchsize tryingagain switchingto continu",
        r"attemptingtorecoverfromOOM",
        r"retrying(?:batch|with)",
        r"ranoutofmemory,(?:skipping|retry)",
        r"skipp?(?:ing|ed)(?:this)?batch",
        r"(?:reducing|halving|decreasing)batchsize",
        r"Tryingagainwith",
        r"switchingtotiled",
        r"continu(?:e|ing)training",
    ),
    _event(
        "said_oom",
        "outofmemory",
        r"(?:CUDA|GPU)runoutofmemory",
        r"ranoutofmemoryon(?:your|the)GPU",
        r"(?:CUDA|GPU)(?:ran|hasrun)outofmemory",
        weak=True,
    ),
    _event(
        "exception_name",
        "outofmemoryerror",
        r"(?:torch\.(?:cuda\.)?|RayTaskError\(|ExceptionType:\**)OutOfMemoryError",
        weak=True,
    ),
    _sign(
        "graph_capture",
        "capture_end cudagraph streamendcapture",
        r"capture_end\(\)",
        r"cudaGraphInstantiate",
        r"instantiatecudagraph",
        r"CUDAgraphcapturefailed",
        r"cudaStreamEndCapture",
    ),
    _sign("mem_get_info", "memgetinfo mem_get_info", r"cudaMemGetInfo", r"mem_get_info"),
    _sign("trial", "trial", r"trial#?\d+(?=[\w:,]|failed|as)"),
)
"""In order of preference; of several that start on the same line only the first becomes an event."""

EVENTS_ONLY: Final = frozenset({"message_cut", "exception_name", "said_oom"})
"""Kinds that are no sign beside the event."""
HOST: Final = frozenset({"cpu_allocator", "host_alloc_failed", "pinned_failed"})
"""Kinds whose event is about host memory."""
