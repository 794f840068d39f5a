"""Changes of code, by what the failing or holding frames were doing."""

from __future__ import annotations

import re
from typing import Final

from oomctl.remedies.base import Entry

NO_GRAD: Final = re.compile(r"^decorate_context$")
"""torch's wrapper of a function under no_grad or inference_mode: whatever runs inside keeps no graph."""

EVALUATING: Final = re.compile(
    r"(?:^|_)eval|valid(?!_mask)|predict|infer|generate|test_step|(?<!up)(?<!down)(?<!re)sample(?!_mask)", re.IGNORECASE
)
"""Names of functions that run a model without training it."""

SAVING: Final = re.compile(r"save|checkpoint|state_dict|flatten|consolidat|export|clone|deepcopy", re.IGNORECASE)
"""Names of functions that copy weights or states."""

COPYING: Final = re.compile(r"sav(?:e|ing)(?!d)|checkpoint|state_dict|consolidat|export|deepcopy", re.IGNORECASE)
"""Names that say so beyond doubt: no batch takes part in what they do."""

CODE: Final[tuple[Entry, ...]] = (
    # Leaks.
    Entry(
        "detach-losses",
        "code",
        ("leak",),
        "Keep a number, not the tensor with its graph, at {site}",
        "A loss or metric that is kept with its graph keeps every activation of its step alive.",
        re.compile(r"loss|(?:^|_)metric|accura|logg(?:er|ing)|summed|running|(?<!para)meter|averag", re.IGNORECASE),
        unless=NO_GRAD,
        example="total += loss.item()              # not: total = total + loss\nhistory.append(loss.detach().cpu())",
        caveats=("`.item()` waits for the GPU: collect detached tensors and convert them once in a while",),
        weight=20,
    ),
    Entry(
        "outputs-off-device",
        "code",
        ("leak",),
        "Move what is kept from each batch off the device, or bound it, at {site}",
        "Results that are appended to a list stay on the GPU until the list goes; without no_grad, every activation "
        "of their batch stays with them.",
        re.compile(
            r"predict|(?:^|_)eval|valid|infer|output|collect|(?<!all_)gather|generate|(?:^|_)test", re.IGNORECASE
        ),
        example="with torch.no_grad():\n    outputs.append(model(x).cpu())",
        weight=18,
    ),
    Entry(
        "hooks-removed",
        "code",
        ("leak",),
        "Detach what the hook stores and clear it each step, at {site}",
        "A hook that saves activations keeps them, and with them the graph, until its store is emptied.",
        re.compile(r"hook|(?:^|_)tap|save$|capture_act|record_act", re.IGNORECASE),
        example="handle = module.register_forward_hook(hook)\n...\n"
        "handle.remove()          # or: store.clear() after each step",
        weight=19,
    ),
    Entry(
        "bounded-buffer",
        "code",
        ("leak",),
        "Bound the buffer, or keep it on the host, at {site}",
        "A buffer that is only ever appended to grows until the card is full.",
        re.compile(r"remember|replay|buffer|queue|memory|cache|bank|histor|(?<!re)store|push|append", re.IGNORECASE),
        example="buffer = collections.deque(maxlen=1000)\nbuffer.append(state.cpu())",
        weight=17,
    ),
    Entry(
        "copies-of-weights",
        "code",
        ("leak",),
        "Keep one copy of the weights and update it in place, or keep copies on the host, at {site}",
        "Each copy of a state dict on the device costs the whole model again.",
        re.compile(r"(?:^|_)(?:ema|swa|best)(?:_|$)|copy|copies|clone|snapshot|checkpoint|state_dict", re.IGNORECASE),
        example="for e, p in zip(ema, model.parameters()):\n    e.lerp_(p.detach(), 1 - decay)",
        weight=16,
    ),
    Entry(
        "detach-state",
        "code",
        ("leak",),
        "Detach the state that is carried from step to step, at {site}",
        "A hidden state that is fed into the next step without detach() chains all graphs together.",
        re.compile(r"lstm|(?:^|_)gru(?:_|$)|rnn|recurr|unroll|bptt", re.IGNORECASE),
        unless=NO_GRAD,
        example="state = tuple(s.detach() for s in state)",
        weight=18,
    ),
    Entry(
        "drop-what-is-kept",
        "code",
        ("leak",),
        "Find what still refers to the tensors made at {site}, and drop it each step",
        "These blocks are made again and again and never freed: a list, a dict, a closure or a global holds them, or "
        "the graph of a loss or state that is carried on without detach().",
        example="for holder in gc.get_referrers(tensor):      # who still refers to one of them\n"
        "    print(type(holder))",
        caveats=("reference cycles are freed only by gc.collect(): break the cycle rather than collecting every step",),
        weight=1,
    ),
    # Peaks.
    Entry(
        "chunked-loss",
        "code",
        ("transient_peak",),
        "Compute the loss in chunks, without a float32 copy of all logits, at {site}",
        "Logits of batch x sequence x vocabulary are cast to float32, softmaxed and differentiated: several copies of "
        "the largest tensor of the model exist at once.",
        # Trainers call the whole model from a function of such a name, which says nothing about the loss.
        re.compile(
            r"cross_entropy|log_softmax|logits|lm_head|(?<!compute_)(?<!calculate_)(?<!get_)loss(?!_and_)",
            re.IGNORECASE,
        ),
        example="loss = sum(F.cross_entropy(head(h).float(), t, reduction='sum')\n"
        "           for h, t in zip(hidden.split(1024), target.split(1024))) / target.numel()",
        caveats=("wrap each chunk in torch.utils.checkpoint, or all logits are kept for the backward pass",),
        weight=20,
    ),
    Entry(
        "fused-attention",
        "code",
        ("transient_peak",),
        "Use scaled_dot_product_attention, or cut the sequence, at {site}",
        "A score matrix grows with the square of the sequence; fused attention never makes it.",
        re.compile(r"attention|attn|(?<!log_)softmax|_mask|bmm|einsum", re.IGNORECASE),
        example="out = F.scaled_dot_product_attention(q, k, v, is_causal=True)",
        weight=19,
    ),
    Entry(
        "save-on-host",
        "code",
        ("transient_peak",),
        "Copy to the host piece by piece when saving, at {site}",
        "Flattening or cloning weights and optimizer state on the device needs their size again.",
        SAVING,
        not_phases=("forward", "backward", "load"),
        not_subtypes=("impossible_request",),
        example="state = {k: v.cpu() for k, v in model.state_dict().items()}\ntorch.save(state, path)",
        weight=22,
    ),
    Entry(
        "no-grad-evaluation",
        "code",
        ("transient_peak",),
        "Evaluate under torch.inference_mode() with its own batch size, at {site}",
        "Outside no_grad every activation of the evaluation is kept for a backward pass that never comes; under it, "
        "what is left grows with the batch.",
        EVALUATING,
        not_subtypes=("impossible_request",),
        unless=NO_GRAD,
        example="model.eval()\nwith torch.inference_mode():\n    ...",
        weight=18,
    ),
    Entry(
        "smaller-evaluation",
        "code",
        ("transient_peak",),
        "Do less at once in the pass without gradients, at {site}",
        "No graph is kept here: what fills the memory grows with the batch, the length, and the number of beams, "
        "candidates or samples that run side by side.",
        NO_GRAD,
        not_phases=("optimizer",),
        not_subtypes=("impossible_request",),
        example="for part in batch.split(16):\n    results.append(model(part).cpu())",
        weight=18,
    ),
    Entry(
        "optimizer-state",
        "code",
        ("transient_peak", "capacity"),
        "Make the optimizer's state smaller: 8-bit or factored moments, sharding or offloading, at {site}",
        "The first step() makes the state, for Adam two more copies of the weights, and it stays: a smaller batch or "
        "another implementation of the same optimizer does not change its size.",
        re.compile(r"^_?init_group$|^_?(?:init|make|create)_(?:\w+_)?state$", re.IGNORECASE),
        operation_only=True,
        not_subtypes=("impossible_request",),
        example="optimizer = torch.optim.Adafactor(params)      # or bitsandbytes.optim.AdamW8bit,\n"
        "                                               # or ZeroRedundancyOptimizer",
        caveats=("8-bit and factored moments change the numerics: compare the first hundred losses",),
        weight=26,
    ),
    Entry(
        "optimizer-not-foreach",
        "code",
        ("transient_peak", "capacity"),
        "Build the optimizer with foreach=False or fused=True, at {site}",
        "The foreach implementation makes temporaries as large as all parameters at once, on top of the state.",
        re.compile(r"adam|_multi_tensor|_foreach|optimizer|^step$|sgd|adagrad|lamb", re.IGNORECASE),
        phases=("optimizer",),
        example="optimizer = torch.optim.AdamW(params, lr=1e-4, fused=True)",
        caveats=("the state itself stays: an 8-bit optimizer, sharding or CPU offload shrinks that",),
        weight=24,
    ),
    Entry(
        "shape-check",
        "code",
        ("transient_peak/impossible_request",),
        "Check the shapes at {site}: a broadcast, an index or a length makes this tensor far too large",
        "The single request is larger than the card: no setting and no smaller batch of the same shape helps.",
        weight=5,
    ),
    Entry(
        "outlier-batch",
        "code",
        ("transient_peak",),
        "Cap the size of a batch by its tokens or pixels, not by its count, before {site}",
        "A step that needs much more than the ones before it mostly has an outlier in its batch: sort into buckets, "
        "truncate or split.",
        not_phases=("optimizer",),
        not_subtypes=("first_step", "impossible_request"),
        unless=COPYING,
        example="batches = bucket_by_length(dataset, max_tokens=16_384)",
        weight=8,
    ),
    Entry(
        "smaller-step",
        "code",
        ("transient_peak", "capacity"),
        "Make less at once: smaller micro-batches with accumulation, or activation checkpointing, at {site}",
        "What the step makes for its backward pass grows with the batch and the depth.",
        not_phases=("load", "optimizer"),
        not_subtypes=("impossible_request",),
        unless=re.compile(f"{NO_GRAD.pattern}|{COPYING.pattern}", re.IGNORECASE),
        example="x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
        caveats=("checkpointing recomputes each block: about a third more time",),
        weight=4,
    ),
    # Fragmentation by code.
    Entry(
        "shared-graph-pool",
        "code",
        ("fragmentation/private_pools",),
        "Let all captures share one memory pool, and drop pools that are done, at {site}",
        "Each CUDA graph and each torch.cuda.MemPool keeps idle memory that no other request can use. Graphs that "
        "never run at the same time can share a pool; a MemPool gives its memory back when it is deleted.",
        example="pool = torch.cuda.graph_pool_handle()\nwith torch.cuda.graph(g, pool=pool):\n    ...\n"
        "del mem_pool  # a torch.cuda.MemPool, once its tensors are gone",
        caveats=(
            "graphs that share a pool must be replayed in the order of capture, and outputs copied before the "
            "next replay",
        ),
        weight=30,
    ),
    Entry(
        "streams-shared",
        "code",
        ("fragmentation/stream_stranded",),
        "Allocate on one stream and use record_stream, or call torch.cuda.empty_cache() between phases, at {site}",
        "Memory cached by one stream cannot serve another; it comes back only through the driver.",
        weight=20,
    ),
    Entry(
        "preallocate",
        "code",
        ("fragmentation",),
        "Allocate the large, long-lived buffer first and reuse it, at {site}",
        "Small tensors that outlive the big ones between them keep whole segments from being reused.",
        not_subtypes=("rounding", "private_pools", "stream_stranded"),
        example="buffer = torch.empty(max_len, dim, device='cuda')   # once, before the small tensors\n"
        "view = buffer[:n]",
        weight=3,
    ),
)
"""Code remedies; more specific ones have the higher weight."""
