"""Things to do outside the program."""

from __future__ import annotations

import re
from typing import Final

from oomctl.remedies.base import Entry

_RECORD: Final = (
    "torch.cuda.memory._record_memory_history(max_entries=200_000, context='alloc', stacks='python')\n...\n"
    "torch.cuda.memory._dump_snapshot('oom.pickle')      # in the except block, before disabling"
)

_PROFILED: Final = "jax|tensorflow|paddle|mxnet|cupy|rmm"
"""Frameworks with pools of their own and a profile of them."""

STREAMED: Final = re.compile(
    r"set_module_tensor_to_device|_load_state_dict_into_meta_model|_load_pretrained_model|load_weights$|load_shard"
)
"""Loaders that read each tensor on the host and move it alone: another place to load to changes nothing."""

OPERATIONS: Final[tuple[Entry, ...]] = (
    Entry(
        "free-the-card",
        "operations",
        ("external",),
        # What this process holds itself is not freed by ending others.
        "End or move the other processes on the card",
        "Their memory, not this program's, is what the request lacked.",
        not_subtypes=("non_pytorch",),
        example="nvidia-smi                        # who holds the card\n"
        "kill PID                          # or choose another card:\nCUDA_VISIBLE_DEVICES=1 python train.py",
        caveats=(
            "ending a process ends its job: see first whose it is",
            "inside a container the PIDs may belong to another namespace",
        ),
        applicability="has_cost",
        weight=10,
    ),
    Entry(
        "non-pytorch-memory",
        "operations",
        ("external/non_pytorch",),
        "Shrink what this process holds outside PyTorch's allocator",
        "CUDA contexts, NCCL buffers, cuBLAS workspaces, CuPy, TensorRT, RAPIDS or a second framework allocate on "
        "their own.",
        example="CUBLAS_WORKSPACE_CONFIG=:4096:2  NCCL_BUFFSIZE=2097152  python train.py",
        applicability="has_cost",
        weight=12,
    ),
    Entry(
        "serving-share",
        "operations",
        ("external/non_pytorch", "capacity", "transient_peak"),
        "Give the serving engine a smaller share of the card: vLLM --gpu-memory-utilization, SGLang "
        "--mem-fraction-static",
        "The engine fills its share with weights and key-value cache beforehand; graphs, sampling and other libraries "
        "have to fit into the rest.",
        re.compile(r"^(?:vllm|sglang)$"),
        not_subtypes=("impossible_request",),
        example="vllm serve MODEL --gpu-memory-utilization 0.85 --max-num-seqs 64",
        caveats=("less cache: fewer or shorter sequences at a time",),
        applicability="has_cost",
        weight=17,
    ),
    Entry(
        "fit-the-model",
        "operations",
        ("capacity",),
        "Make the permanent part smaller: lower precision, quantised weights, sharding or offloading",
        "What stays fills the card by itself; no allocator setting makes room.",
        unless=re.compile("^larger_than_limit$"),
        example="model = AutoModel.from_pretrained(name, torch_dtype=torch.bfloat16, device_map='auto')",
        applicability="edit_code",
        weight=6,
    ),
    Entry(
        "smaller-tensor",
        "code",
        ("capacity", "transient_peak/oversized_request"),
        "Make this one tensor smaller, or work on it in pieces, at {site}",
        "It alone exceeds what there is: nothing that is freed beside it makes room.",
        re.compile("^larger_than_limit$"),
        example="for part in batch.split(8):                     # or tiles of an image, chunks of a sequence\n"
        "    results.append(model(part).cpu())",
        weight=21,
    ),
    Entry(
        "raise-the-cap",
        "operations",
        ("capacity", "transient_peak", "uncertain"),
        "Raise the limit that this program, or its launcher, set for itself",
        "The card had more free than the request; torch.cuda.set_per_process_memory_fraction (or "
        "per_process_memory_fraction in the allocator's settings) kept it from being used.",
        re.compile("^own_cap$"),
        not_subtypes=("impossible_request",),
        example="torch.cuda.set_per_process_memory_fraction(0.9)   # test suites and engines call it too",
        caveats=("what the limit protects, such as another process on the card, loses that protection",),
        applicability="has_cost",
        weight=30,
    ),
    Entry(
        "smaller-cache",
        "code",
        ("capacity",),
        "Preallocate a smaller cache at {site}",
        "A cache sized for the longest case takes its memory whether or not it is used.",
        re.compile(r"cache|(?:^|_)kv(?:_|$)|prealloc|buffer", re.IGNORECASE),
        weight=12,
    ),
    Entry(
        "load-on-host",
        "code",
        ("capacity",),
        "Load with map_location='cpu' and move what is needed, at {site}",
        "What is loaded onto the device lies there: a file's tensors beside the model's while they are copied, a data "
        "set for as long as it is used.",
        re.compile(r"^load|load_state_dict|_load(?!er)", re.IGNORECASE),
        unless=STREAMED,
        example="state = torch.load(path, map_location='cpu', mmap=True)\nmodel.load_state_dict(state)",
        weight=14,
    ),
    Entry(
        "load-on-host-first",
        "code",
        ("uncertain", "external", "transient_peak"),
        "Load with map_location='cpu', at {site}",
        "torch.load puts each tensor on the GPU that it was saved from, often GPU 0, whoever else works there; "
        "load_state_dict of an optimizer then copies it once more.",
        re.compile(r"^_?cuda_deserialize$|^default_restore_location$|^deepcopy$"),
        phases=("load", "unknown"),
        example="state = torch.load(path, map_location='cpu', mmap=True)\nmodel.load_state_dict(state)",
        weight=23,
    ),
    Entry(
        "shared-memory",
        "operations",
        ("host_oom",),
        "Give the container more shared memory, or load the data in the main process",
        "DataLoader workers pass their batches through /dev/shm, of which a container has 64 MiB unless told "
        "otherwise.",
        re.compile("^shm$"),
        example="docker run --shm-size=8g ...      # or --ipc=host; on Kubernetes an emptyDir of medium: Memory\n"
        "DataLoader(..., num_workers=0)    # needs none",
        applicability="safe",
        weight=14,
    ),
    Entry(
        "host-memory",
        "operations",
        ("host_oom",),
        "Give the job more host memory, or let it need less: fewer DataLoader workers, no pinned copies",
        "The machine's RAM ran out, not the GPU's memory: no allocator setting for CUDA matters here.",
        example="DataLoader(..., num_workers=2, pin_memory=False, prefetch_factor=1)",
        applicability="has_cost",
        weight=10,
    ),
    Entry(
        "debug-the-real-error",
        "operations",
        ("not_an_oom",),
        "Find the error itself: run again with CUDA_LAUNCH_BLOCKING=1",
        "The message resembles an out-of-memory but memory was not short; an illegal index or a bad "
        "size often is the cause.",
        unless=re.compile("^(?:nothing_failed|kernel_resources|worker_crashed|workspace_too_small)$"),
        example="CUDA_LAUNCH_BLOCKING=1 python train.py\n"
        "# AMD: AMD_SERIALIZE_KERNEL=3; Ascend: ASCEND_LAUNCH_BLOCKING=1",
        applicability="safe",
        weight=10,
    ),
    Entry(
        "smaller-kernel-blocks",
        "code",
        ("not_an_oom",),
        "Give the kernel smaller blocks or fewer stages for this GPU",
        "A Triton kernel holds its tiles in on-chip shared memory, about 64 to 228 KiB by generation; sizes tuned on a "
        "newer card do not fit an older one.",
        re.compile("^kernel_resources$"),
        example="kernel[grid](..., BLOCK_M=64, BLOCK_N=64, num_stages=2)   # or the library's version for this card",
        weight=12,
    ),
    Entry(
        "debug-the-worker",
        "operations",
        ("not_an_oom",),
        "Load the data without workers, to see the crash itself",
        "A worker that dies by a fault in native code (a decoder, an extension) leaves no Python traceback.",
        re.compile("^worker_crashed$"),
        example="python -X faulthandler train.py   # with DataLoader(..., num_workers=0)",
        applicability="safe",
        weight=12,
    ),
    Entry(
        "larger-workspace",
        "operations",
        ("not_an_oom",),
        "Give the attention library a larger workspace, or send it less at a time",
        "Its buffer is made once at the start; more requests or longer prompts in one batch than it was made for do "
        "not fit.",
        re.compile("^workspace_too_small$"),
        example="SGLANG_FLASHINFER_WORKSPACE_SIZE=805306368 python -m sglang.launch_server ...",
        applicability="safe",
        weight=12,
    ),
    Entry(
        "fewer-layers-on-the-card",
        "operations",
        ("uncertain",),
        "Put fewer layers on the card, or make the context smaller",
        "llama.cpp asks for each part (weights, KV cache, compute buffer) in one piece and prints its size. Layers "
        "that do not fit can stay on the CPU; cache and compute buffer shrink with the context.",
        re.compile("^llamacpp_oom$"),
        caveats=("Layers on the CPU are slower.",),
        example="llama-server -m model.gguf --n-gpu-layers 24 --ctx-size 8192 --flash-attn on",
        applicability="has_cost",
        weight=14,
    ),
    Entry(
        "smaller-engine-workspace",
        "operations",
        ("uncertain",),
        "Give the TensorRT builder less workspace than the card has free",
        "The builder tries tactics up to the size it is allowed and skips those that it cannot get: where a plan comes "
        "out in the end, these lines are warnings.",
        re.compile("^tensorrt_oom$"),
        example="config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 30)",
        applicability="safe",
        weight=14,
    ),
    Entry(
        "bound-the-session-arena",
        "operations",
        ("uncertain",),
        "Let ONNX Runtime's arena grow by what is asked for, and run fewer sessions at once",
        "By default the arena doubles when it grows and gives nothing back; each session has its own, and PyTorch's "
        "memory is not in it. A session on the CPU has one too, in RAM.",
        re.compile("^onnx_oom$"),
        example="providers=[('CUDAExecutionProvider', {'arena_extend_strategy': 'kSameAsRequested',\n"
        "                                     'gpu_mem_limit': 4 * 1024**3})]",
        applicability="safe",
        weight=14,
    ),
    Entry(
        "profile-the-framework",
        "operations",
        ("uncertain",),
        "Look at the memory with the framework's own profile; a snapshot of PyTorch does not hold it",
        "Each framework has its own pool. A smaller batch or input is the first thing to try where none is at hand.",
        re.compile(f"^(?:{_PROFILED})_oom$"),
        example="jax.profiler.save_device_memory_profile('memory.prof')      # JAX\n"
        "tf.config.experimental.get_memory_info('GPU:0')              # TensorFlow\n"
        "paddle.device.cuda.max_memory_allocated()                    # PaddlePaddle\n"
        "cupy.get_default_memory_pool().used_bytes()                  # CuPy",
        applicability="safe",
        weight=14,
    ),
    Entry(
        "dump-again",
        "operations",
        ("uncertain",),
        "Copy the whole snapshot again, or dump one that has its events",
        "This one shows what was held, but its events are missing: whether it grew or one step took it stays open.",
        example=_RECORD,
        applicability="safe",
        weight=10,
    ),
    Entry(
        "record-a-snapshot",
        "operations",
        ("uncertain",),
        "Record a snapshot, which decides it",
        "Text alone does not show what held the memory, or whether it grew.",
        unless=re.compile(f"^(?:{_PROFILED}|llamacpp|tensorrt|onnx)_oom$"),
        example=_RECORD,
        applicability="safe",
        weight=10,
    ),
)
"""Operations, and code that is about loading and caches."""
