"""Pages about what to do: recording and reading a snapshot, finding a leak, saving memory."""

from __future__ import annotations

from typing import Final

from oomctl.model.pages import Page

HOWTO_PAGES: Final[tuple[Page, ...]] = (
    Page(
        "",
        "reading-a-snapshot",
        "Recording a memory snapshot, and what is in it",
        """A snapshot is a pickle with every segment and block of torch's allocator, and the history of allocations and
frees with the Python stack of each. To record one (torch 2.1 and later):

    import torch

    torch.cuda.memory._record_memory_history(max_entries=1_000_000)
    try:
        train()
    except torch.cuda.OutOfMemoryError:
        torch.cuda.memory._dump_snapshot("oom.pickle")
        raise

Then, on any machine:

    oomctl diagnose oom.pickle

- Start recording before the model is built; what was allocated earlier has no stack.
- Dump before recording is switched off: _record_memory_history(enabled=None) clears the history from torch 2.3 on,
and the file then has segments but no trace.
- The file is written after the exception has unwound, so much is free again by then. oomctl rolls the history back
to the moment of the failure; looking at the segments alone misleads.
- max_entries bounds the history; the oldest events are dropped. A leak needs several steps in it.
- stacks="python" is cheap; stacks="all" adds C++ frames, which make dumping very slow.
- Every event costs a little time and host memory; with Python stacks it is cheap enough for real runs.
- Under backend:cudaMallocAsync there are no snapshots. PYTORCH_NO_CUDA_MEMORY_CACHING=1 leaves them empty.

What it says: which line holds how much at the failure, which holes there were for the request, what grew from step
to step, and whether other settings would have served the request (by replay). What it cannot say: what other
processes and libraries outside torch's allocator held.

A snapshot is a pickle, and unpickling runs code. oomctl reads it without running anything; do not pickle.load() a
file that you did not write.""",
        ("leak-hunting", "four-numbers", "whatif"),
        (
            "snapshot",
            "record",
            "recording",
            "pickle",
            "_dump_snapshot",
            "_record_memory_history",
            "memory_viz",
            "trace",
        ),
    ),
    Page(
        "",
        "leak-hunting",
        "A leak that looks innocent, and how to find it",
        """    losses = []
    for batch, target in validation_loader:       # no torch.no_grad() around it
        loss = criterion(model(batch), target)
        losses.append(loss)                       # keeps the graph of every step

One number a step, it seems; but the loss holds its autograd graph, and the graph holds the activations of the whole
step, until backward() frees them or the loss is dropped. float(loss) or loss.item() keeps the number alone. The
same with

- running sums over steps without backward(): total += loss (write total += loss.item())
- metrics, logs and outputs kept in a list or on self, without .detach().cpu()
- hooks and callbacks that store activations
- evaluation without torch.no_grad() or torch.inference_mode()
- retain_graph=True, or hidden states carried over without .detach()
- a cache keyed by shape or by batch (also torch.compile with changing shapes)
- an exception whose traceback keeps the frame, and so its locals, alive: `except ... as e` stored somewhere, a
notebook

What is no leak: memory that grows for the first steps and then stays (optimizer state made in the first step, cuDNN
trials, the cache filling up); a large reserved; a gap to nvidia-smi.

To find it: compare the same point of several steps.

    torch.cuda.memory_allocated()     # at the end of every step: does it climb?

Then record a snapshot over at least five steps and let oomctl name the line:

    oomctl diagnose oom.pickle""",
        ("leak", "reserved-vs-allocated", "reading-a-snapshot"),
        ("leaking", "growing", "grows", "climbs", "every step", "detach", "item", "losses", "epoch", "reference"),
    ),
    Page(
        "",
        "saving-memory",
        "Checklist: needing less memory",
        """Know first which part is large (`oomctl diagnose`). Training with Adam in float32 takes 16 bytes a parameter
before the first activation: 4 weights, 4 gradients, 8 optimizer state.

Costs nothing:

- optimizer.zero_grad(set_to_none=True), the default since torch 2.0
- torch.no_grad() or torch.inference_mode() in evaluation
- load checkpoints with map_location="cpu", and delete the state dict after loading
- delete large intermediates (logits, images) before the next large step
- keep numbers, not tensors: .item(), .detach().cpu()

Costs some time:

- smaller batch with gradient accumulation
- activation checkpointing (torch.utils.checkpoint): trades a second forward pass for most activations
- bfloat16 autocast; parameters kept in bfloat16 where the training allows it
- the loss in chunks: logits of 128k words for 8k tokens take 4 GiB in float32, and cross entropy needs them more
than once
- scaled_dot_product_attention instead of a matrix of sequence x sequence
- foreach=False or fused=True in the optimizer: foreach makes temporaries as large as the parameters
- 8-bit optimizer state

Costs work:

- sharding (FSDP, ZeRO), tensor or pipeline parallelism
- offloading optimizer state or activations to the host
- one pool for all CUDA graphs, a bounded KV cache

Allocator settings save nothing that tensors need: they only help against fragmentation.""",
        ("transient_peak", "capacity", "fragmentation"),
        ("reduce", "save", "less", "checkpointing", "batch", "tips", "optimize", "fit", "lower"),
    ),
    Page(
        "",
        "whatif",
        "Replaying a snapshot under other settings",
        """oomctl simulates torch's allocator. Fed with the recorded allocations and frees of a snapshot, it says what
reserved memory would have been under other settings, and whether the failing request would have been
served:

    oomctl whatif snapshot.pickle --conf expandable_segments:True

First it replays the trace under its own settings and compares address by address with what was recorded:
"reproduces 55,227 of 55,227" means that the model and your run agree, so that the prediction deserves trust. If it
does not reproduce the recording, it says so and why.

What it assumes: the program asks for the same sizes in the same order. That holds for allocator settings, which the
program does not see; it does not hold if it looks at free memory to choose its batch size.""",
        ("classic-and-expandable", "reading-a-snapshot", "expandable_segments"),
        ("replay", "simulate", "predict", "what if", "prove", "would it help"),
    ),
)
