"""Failures that carry no allocator figures: the driver, libraries, the host, other frameworks; and what is no OOM "
"at all."""

from __future__ import annotations

import re
from typing import Final

from oomctl.diagnosis.text_opinion import SNAPSHOT, Context, Opinion, item, size
from oomctl.diagnosis.text_picture import has
from oomctl.diagnosis.text_stack import ONTO_ITS_GPU
from oomctl.model.common import Skipped
from oomctl.model.evidence import Evidence
from oomctl.model.log import OomEvent, Sign
from oomctl.model.report import EvidenceItem
from oomctl.units import read_size

HOST_SURE: Final = ("cgroup_oom", "kernel_oom", "ray_memory_monitor")
HOST_LIKELY: Final = ("host_killed", "shm")
HOST_EVENTS: Final = ("cpu_allocator", "host_alloc_failed", "pinned_failed")
NOT_MEMORY: Final = {
    "index_assert": "an index outside its table tripped a check on the device",
    "illegal_access": "a kernel read or wrote an address that is not its own",
    "shape_error": "two shapes do not fit together",
    "dtype_error": "types or devices do not fit together",
    "no_kernel": "the build has no code for this card, or the driver is too old",
    "kernel_resources": "a kernel asks for more on-chip memory (shared memory, registers) than this GPU has, which its "
    "device memory has no part in",
    "workspace_too_small": "a library's workspace, whose size is fixed at the start, is too small for this batch; the "
    "card need not be full",
    "worker_crashed": "a DataLoader worker crashed, which no lack of memory does by this signal",
    "file_error": "a file is missing, unreadable or damaged",
    "nccl_timeout": "the ranks lost each other: a collective ran into its time limit",
    "internal_assert": "a check inside PyTorch failed",
}
"""Kinds of signs and what they are instead, the most telling first."""
_SURE: Final = {
    "index_assert": "high",
    "illegal_access": "high",
    "shape_error": "high",
    "dtype_error": "high",
    "kernel_resources": "high",
    "internal_assert": "low",
}
"""Confidence where it is not medium."""
OTHER_BOOKS: Final = {
    "jax_oom": "JAX/XLA",
    "tensorflow_oom": "TensorFlow",
    "llamacpp_oom": "llama.cpp",
    "rmm_oom": "RAPIDS (RMM)",
    "cupy_oom": "CuPy",
    "onnx_oom": "ONNX Runtime",
    "paddle_oom": "PaddlePaddle",
    "mxnet_oom": "MXNet",
    "tensorrt_oom": "TensorRT",
}
"""Allocators that are recognised, by wording."""
IMPOSSIBLE: Final = 2**50
"""Bytes that no device has; a request for more shows a size that was computed wrongly."""
_NUMBERLESS: Final = Skipped(
    "how much was live, idle and held by others",
    "the message has no figures",
    "nvidia-smi at the failure, and " + SNAPSHOT,
)


def host(evidence: Evidence) -> Opinion | None:
    """A failure of host memory: the kernel, a supervisor or the CPU allocator says so."""
    sure = has(evidence.signs, *HOST_SURE)
    event = next((e for e in evidence.oom_events if e.backend == "host"), None)
    likely = has(evidence.signs, *HOST_LIKELY)
    rss = has(evidence.signs, "killed_rss")
    statements = []
    for sign in (sure, likely):
        if sign is not None:
            statements.append(item(f"Line {sign.line}: {sign.text[:160]}"))
    if rss is not None:
        statements.append(item(f"The killed process held {size(rss.size)} of RAM", rss=rss.size))
    if event is not None:
        asked = f" for {size(event.tried_to_allocate)}" if event.tried_to_allocate is not None else ""
        return Opinion(
            "host_oom",
            None,
            "high" if event.wording == "cpu_allocator" else "medium",
            f"Host memory ran out: the request{asked} was refused by the operating system, not by the GPU",
            (item(f"Line {event.line}: {event.text[:160]}", request=event.tried_to_allocate), *statements),
        )
    if sure is not None:
        killed = f", with {size(rss.size)} in use" if rss is not None else ""
        return Opinion(
            "host_oom",
            None,
            "high",
            f"Host memory ran out: the system ended the process{killed}; the GPU has no part in it",
            tuple(statements),
        )
    if likely is not None:
        if likely.kind == "shm":
            text = "Shared memory (/dev/shm) of the machine or container ran out, not the GPU's memory"
        else:
            text = "A process was killed from outside, which is what the system does when host memory runs out"
        return Opinion(
            "host_oom",
            None,
            "medium" if likely.kind == "shm" or "Killed" in likely.text else "low",
            text,
            tuple(statements),
        )
    return None


def no_figures(event: OomEvent, c: Context) -> Opinion:
    """A failure on the device whose wording names a cause or hides it."""
    signs = c.evidence.signs
    line = item(f"Line {event.line}: {event.text[:160]}", request=event.tried_to_allocate)
    code = " ".join((*event.code, *(f.name for f in event.traceback)))
    wording = event.wording
    if wording == "more_than_1EB":
        return Opinion(
            "not_an_oom",
            None,
            "high",
            "More than 1 EB was asked for: a size was corrupt or overflowed, memory was not short",
            (line,),
        )
    asserted = has(signs, "index_assert", "illegal_access")
    if asserted is not None and wording in ("cublas_alloc_failed", "cudnn_alloc_failed", "cuda_error_oom"):
        return Opinion(
            "not_an_oom",
            None,
            "medium",
            f"The library call failed after another error: {NOT_MEMORY[asserted.kind]}",
            (item(f"Line {asserted.line}: {asserted.text[:160]}"), line),
        )
    if wording == "single_block_limit":
        return Opinion(
            "uncertain",
            None,
            "low",
            f"The platform refuses a single block of {size(event.tried_to_allocate)}: a limit on one allocation, not "
            f"a full card",
            (line,),
        )
    if wording in ("cuda_error_oom", "driver_oom", "thc_oom"):
        return _driver(event, c, line, code)
    if wording == "nccl_alloc":
        asked = f" {size(event.tried_to_allocate)}" if event.tried_to_allocate is not None else " memory"
        return Opinion(
            "capacity",
            None,
            "low",
            f"NCCL could not get{asked} from the driver: the card was full, and its buffers lie outside PyTorch's "
            f"allocator",
            (line,),
            limits=(_NUMBERLESS,),
        )
    if wording in OTHER_BOOKS:
        name = OTHER_BOOKS[wording]
        if (event.tried_to_allocate or 0) >= IMPOSSIBLE:
            return Opinion(
                "not_an_oom",
                None,
                "medium",
                f"{name} was asked for {size(event.tried_to_allocate)}, which no device has: a size was corrupt or "
                f"overflowed",
                (line,),
            )
        asked = f" for {size(event.tried_to_allocate)}" if event.tried_to_allocate is not None else ""
        return Opinion(
            "uncertain",
            None,
            "low",
            f"{name} ran out of memory{asked}; its allocator is recognised, not analysed",
            (line,),
            limits=(
                Skipped("the cause", f"the books of {name} are not PyTorch's", "the framework's own memory profile"),
            ),
        )
    text = {
        "cublas_alloc_failed": "cuBLAS could not get its memory: the card was full, or an earlier error (a bad "
        "index) surfaced here",
        "cudnn_alloc_failed": "cuDNN could not get its memory: the card was full at that moment",
        "cusolver_alloc_failed": "A CUDA library could not get its memory: the card was full, or an earlier error "
        "surfaced here",
        "nvml_assert": "An out-of-memory in disguise: the driver refused, and NVML, needed for the message, is not "
        "available",
        "async_message_cut": "The cudaMallocAsync backend ran out; its message is cut before the first figure",
        "level_zero_oom": "The Intel driver ran out of memory or of another resource",
    }.get(wording, "The text says that the device ran out of memory, without a single figure")
    return Opinion("uncertain", None, "low", text, (line,), limits=(_NUMBERLESS,))


def _driver(event: OomEvent, c: Context, line: EvidenceItem, code: str) -> Opinion:
    if re.search(r"pin_memory|cudaHostAlloc|cudaHostRegister|pinned", code):
        return Opinion(
            "host_oom",
            None,
            "medium",
            "Pinned host memory could not be had: the failing call locks RAM, the GPU's memory is not asked",
            (line,),
        )
    near = [s for s in c.evidence.signs if s.kind == "graph_capture" and abs(s.line - event.line) < 40]
    if near or re.search(r"capture_end|graph\(|instantiate|make_graphed", code):
        return Opinion(
            "external",
            "non_pytorch",
            "low",
            "The driver had no memory left to build a CUDA graph: it allocates outside PyTorch's pools, and those "
            "took the card",
            (line,),
            limits=(_NUMBERLESS,),
        )
    crowded = _crowded(event, c.evidence, line)
    if crowded is not None:
        return crowded
    if any(name in code for name in ONTO_ITS_GPU):
        return Opinion(
            "uncertain",
            None,
            "low",
            "torch.load put the file's tensors straight onto the GPU that they were saved from, and the driver had no "
            "memory there",
            (line,),
            limits=(_NUMBERLESS,),
        )
    innocent = has(c.evidence.signs, "mem_get_info") is not None
    return Opinion(
        "uncertain",
        None,
        "low",
        "The driver reported out of memory outside the caching allocator"
        + (", in a call that allocates nothing: an earlier failure surfaced here" if innocent else ", without figures"),
        (line,),
        limits=(_NUMBERLESS,),
    )


def _crowded(event: OomEvent, evidence: Evidence, line: EvidenceItem) -> Opinion | None:
    """One print of nvidia-smi shows one card full beside free ones: the program went to the wrong one."""
    if len(evidence.smi) != 1 or event.wording == "thc_oom":
        return None
    shares = [(d, d.used / d.total) for d in evidence.smi[0].devices if d.used is not None and d.total]
    full = [d for d, share in shares if share >= 0.9]
    free = [d for d, share in shares if share <= 0.1]
    if len(full) != 1 or not free or (event.gpu is not None and event.gpu != full[0].gpu):
        return None
    seen = item(
        f"nvidia-smi shows {size(full[0].used)} of {size(full[0].total)} in use on GPU {full[0].gpu}, and GPU "
        f"{free[0].gpu} free",
        used=full[0].used,
        total=full[0].total,
    )
    return Opinion(
        "external",
        None,
        "low",
        f"GPU {full[0].gpu} was full, {size(full[0].used)} of {size(full[0].total)}, while GPU {free[0].gpu} stood "
        f"empty",
        (line, seen),
        limits=(Skipped("whose memory it is", "the print names no process", "nvidia-smi while this program is down"),),
    )


_STARTUP: Final = re.compile(
    r"Free memory on device\s*\(?([\d.]+)\s*/\s*([\d.]+)\s*GiB\)?.*?(?:\(([\d.]+),\s*([\d.]+)\s*GiB\))?", re.S
)


def servers(evidence: Evidence) -> Opinion | None:
    """Inference servers that refuse to start because their own budget does not add up."""
    sign = has(evidence.signs, "vllm_startup_memory")
    if sign is not None:
        match = _STARTUP.search(sign.text)
        free, total = (read_size(match[i] + " GiB") for i in (1, 2)) if match else (None, None)
        if free is not None and total is not None:
            return Opinion(
                "external",
                "other_processes",
                "medium",
                f"Only {size(free)} of {size(total)} were free when the server started: something else holds "
                f"{size(total - free)}",
                (item(f"Line {sign.line}: {sign.text[:200]}", free=free, total=total),),
            )
        return _server(
            "uncertain", sign, "The server's memory profile failed because free memory changed while it measured"
        )
    sign = has(evidence.signs, "vllm_no_cache_blocks", "sglang_no_memory")
    if sign is not None:
        return _server(
            "capacity",
            sign,
            "Weights and the start-up peak leave nothing of the server's memory share for its KV cache",
        )
    return None


def _server(cls: str, sign: Sign, headline: str) -> Opinion:
    return Opinion(cls, None, "low", headline, (item(f"Line {sign.line}: {sign.text[:200]}"),))


def not_memory(evidence: Evidence) -> Opinion | None:
    """An error that is about something else."""
    for kind, text in NOT_MEMORY.items():
        sign = has(evidence.signs, kind)
        if sign is not None:
            return Opinion(
                "not_an_oom",
                None,
                _SURE.get(kind, "medium"),
                f"Not an out-of-memory: {text}",
                (item(f"Line {sign.line}: {sign.text[:200]}"),),
            )
    sign = has(evidence.signs, "worker_gone")
    if sign is not None:
        return Opinion(
            "uncertain",
            None,
            "low",
            "A DataLoader worker died without a word: killed for host memory, or crashed",
            (item(f"Line {sign.line}: {sign.text[:200]}"),),
            limits=(Skipped("who ended the worker", "the message does not say", "dmesg, or the job's cgroup events"),),
        )
    sign = has(evidence.signs, "library_maybe_oom")
    if sign is not None:
        return Opinion(
            "uncertain",
            None,
            "low",
            "A library found no way to run this operation: often an out-of-memory in disguise when the card is "
            "nearly full",
            (item(f"Line {sign.line}: {sign.text[:200]}"),),
            limits=(_NUMBERLESS,),
        )
    return None
