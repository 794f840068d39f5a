"""Pages of the verdicts, for `oomctl explain`: what each means, how it is decided, what it is not."""

from __future__ import annotations

from typing import Final

from oomctl.diagnosis.capacity import Capacity
from oomctl.diagnosis.codes import code_for
from oomctl.diagnosis.external import CONTEXT, SMALL_PART, STEADY
from oomctl.diagnosis.fragmentation import SUBSTANTIAL
from oomctl.diagnosis.leak import SMALLEST
from oomctl.diagnosis.peak import ROOMY
from oomctl.model.pages import Page
from oomctl.units import format_size

_CONFIDENCE: Final = (
    "Confidence is high when the cause is decisive, clearly ahead of every other, and nothing that could overturn it "
    "is "
    "missing from the inputs; medium when one of these fails; low when the inputs can hardly carry a verdict. "
    "`oomctl explain confidence` says what the levels have meant on labelled cases."
)


def _page(cls: str, subtype: str | None, title: str, *paragraphs: str, see: tuple[str, ...] = ()) -> Page:
    return Page(code_for(cls, subtype), subtype or cls, title, "\n\n".join(paragraphs), see)


PAGES: Final[tuple[Page, ...]] = (
    _page(
        "no_oom",
        None,
        "Nothing failed",
        "The trace holds no out-of-memory event that ended the program. Failures that were caught, and after which "
        "allocations went on, are counted as recovered: libraries try and retry (cuDNN's algorithm search, batch "
        "finders).",
        "The report is then about the peak of live memory.",
    ),
    _page(
        "fragmentation",
        None,
        "Enough memory was reserved but idle, in pieces or places that the request could not use",
        "Decided by two questions. Would the request have fitted with perfect packing, that is, is it no larger than "
        "the "
        f"limit less the live bytes? And is the idle memory a substantial part of the limit ({SUBSTANTIAL:.0%} or "
        f"more)?",
        "Idle memory larger than the request is not enough: the last request is often 2 MiB or 20 MiB, and nearly "
        "every "
        "full card has that much idle. A ratio of reserved to allocated memory alone proves nothing either.",
        "A setting is advised only when replaying the recorded requests under it serves the failing one.",
        _CONFIDENCE,
        see=("split_segments", "granule_pinned", "stream_stranded", "private_pools", "rounding", "expandable_segments"),
    ),
    _page(
        "fragmentation",
        "split_segments",
        "Idle memory lies between live blocks of the same segments",
        "A segment that holds one live block cannot be returned to the driver, and its free parts serve only requests "
        "that fit into one of them. The culprits listed are the live blocks that hold such segments, each answering "
        "for "
        "the idle bytes beside it.",
        "Expandable segments often cure it, because memory can be unmapped in 2 MiB or 20 MiB granules; not when every "
        "granule still holds a live block. Allocating long-lived tensors first, or one buffer that is reused, cures "
        "it at "
        "the source.",
        see=("fragmentation", "expandable_segments", "max_split_size_mb", "preallocate"),
    ),
    _page(
        "fragmentation",
        "granule_pinned",
        "Small live blocks hold whole granules of expandable segments",
        "Expandable segments are on, and still the idle memory cannot be unmapped: each granule (2 MiB for small, 20 "
        "MiB "
        "for large requests) holds at least one live block.",
        see=("fragmentation", "preallocate"),
    ),
    _page(
        "fragmentation",
        "stream_stranded",
        "Idle memory is cached for other streams",
        "A block belongs to the stream that it was allocated on; memory cached by one stream serves another only after "
        "its whole segment went back to the driver.",
        see=("fragmentation", "streams-shared"),
    ),
    _page(
        "fragmentation",
        "private_pools",
        "Idle memory lies in private pools",
        "CUDA graph captures and MemPools keep pools of their own. What is idle in them serves nobody else, and goes "
        "back "
        "only when the graph is destroyed. From torch 2.4 on the message counts it as allocated.",
        see=("fragmentation", "shared-graph-pool"),
    ),
    _page(
        "fragmentation",
        "rounding",
        "Blocks are much larger than what was asked for",
        "The waste is inside live blocks: power-of-two rounding (roundup_power2_divisions) or rests too small to "
        "split. "
        "It shows as active bytes well above requested bytes, while idle memory is small.",
        see=("fragmentation", "roundup_power2_divisions"),
    ),
    _page(
        "leak",
        None,
        "Some blocks are kept step after step",
        "Live bytes are compared at the same phase of successive steps, stack by stack (by size where there are no "
        "stacks). Steps come from annotations (ProfilerStep, Optimizer.step), else from the period of the allocations.",
        "A stack leaks when it holds more at step after step, in the later half of the recording as well as before, "
        "until "
        f"the failure, and when its growth is at least {SMALLEST:.0%} of the live bytes and would have made room for "
        f"the "
        "request. Survivors of one step are no leak; state that is freed and made anew each step nets to zero; "
        "growth that "
        "stops is a cache or a warm-up; weights being loaded are capacity.",
        _CONFIDENCE,
        see=("detach-losses", "outputs-off-device", "bounded-buffer", "transient_peak"),
    ),
    _page(
        "transient_peak",
        None,
        "The steady state fits; what one step makes for a while does not",
        f"The floor (live bytes when the step began) is below {ROOMY:.0%} of the limit. What stands above it at the "
        "failure, together with the request, was made within the step and would have gone with it.",
        "No allocator setting makes a peak smaller; a smaller step, checkpointing or a change at the named line does.",
        _CONFIDENCE,
        see=("oversized_request", "step_growth", "first_step", "chunked-loss", "smaller-step"),
    ),
    _page(
        "transient_peak",
        "oversized_request",
        "One request is most of the limit",
        "A score matrix, a full set of logits, a copy of everything at once: the report names the line that asked.",
        see=("transient_peak", "fused-attention", "chunked-loss"),
    ),
    _page(
        "transient_peak",
        "impossible_request",
        "One request is larger than all that the allocator may use",
        "Nearly always a mistake in shapes: a broadcast, an index taken for a size, a sequence that was not cut.",
        see=("transient_peak", "shape-check"),
    ),
    _page(
        "transient_peak",
        "step_growth",
        "This step needed more than the steps before it",
        "A longer sequence, a larger batch, an evaluation, a checkpoint being saved: the report says how much the "
        "steps "
        "before needed above their floor, and how much this one did.",
        see=("transient_peak", "outlier-batch"),
    ),
    _page(
        "transient_peak",
        "first_step",
        "The first step, or the only piece of work, does not fit",
        "No whole step came before the failure. The first optimizer step also makes the optimizer's state, which then "
        "stays. With a smaller batch the floor may turn out to be the problem: that is capacity.",
        see=("transient_peak", "capacity", "optimizer-not-foreach"),
    ),
    _page(
        Capacity().cls,
        None,
        "What stays fills the limit by itself",
        "The floor is most of the limit, or the program was still loading or preallocating and had freed next to "
        "nothing. "
        "Blamed only where nothing is abnormal.",
        see=("fit-the-model", "smaller-cache", "load-on-host"),
    ),
    _page(
        "external",
        None,
        "Memory outside PyTorch's allocator is what the request lacked",
        "The card was full, and what others hold is larger than the request. That alone is no verdict: other processes "
        "may always have been there. It is decisive when the program had been promised more (a memory fraction that "
        "was "
        "not reached), ran earlier steps that needed as much, once had more reserved than it could get now, or wants "
        "only "
        f"a small part of the card ({SMALL_PART:.0%}) of which most is taken. A program that grows by more than "
        f"{STEADY:.0%} of its live bytes is not steady.",
        _CONFIDENCE,
        see=("other_processes", "non_pytorch", "free-the-card"),
    ),
    _page(
        "external",
        "other_processes",
        "Other processes hold the card",
        "From the message's \"Process N has\" clauses, or from the card's size less what is free and what this process "
        "holds. Inside containers the process may be named under another PID or not at all.",
        see=("external", "free-the-card"),
    ),
    _page(
        "external",
        "non_pytorch",
        "This process holds memory outside PyTorch's allocator",
        f"A CUDA context with its libraries stays below {format_size(CONTEXT)}. More is NCCL, cuBLAS workspaces, "
        f"TensorRT, "
        "CuPy, RAPIDS, a second framework or a library of your own.",
        see=("external", "non-pytorch-memory"),
    ),
    _page(
        "host_oom",
        None,
        "The machine's own memory ran out",
        'The CPU allocator failed, pinned memory could not be had, or a process was killed (exit code 137, "Killed", a '
        "cgroup or kernel OOM line). GPU settings have no part in it.",
        see=("host-memory",),
    ),
    _page(
        "not_an_oom",
        None,
        "It resembles an out-of-memory, but memory was not short",
        'An illegal index that surfaces as a cuBLAS failure, a garbage size ("more than 1EB"), a file error. '
        "Run again with CUDA_LAUNCH_BLOCKING=1 to see the real place.",
        see=("debug-the-real-error",),
    ),
    _page(
        "uncertain",
        None,
        "The inputs do not decide it",
        "A single line of a nearly full card cannot tell a leak from a full card. Rather than guess, the report says "
        "what "
        "would decide: usually a snapshot with its trace, or the log beside the snapshot.",
        see=("record-a-snapshot",),
    ),
    Page(
        "",
        "confidence",
        "What high, medium and low confidence have meant",
        "Measured on labelled cases: 82 programs run on an H200 whose fault was known by construction (each judged "
        "from "
        "snapshot and log, from the snapshot alone, and from text alone) and 79 logs of public reports.\n\n"
        "- high: right in 147 of 147\n"
        "- medium: right in 80 of 88; most misses are text alone, where a peak, a full card and fragmentation look "
        "alike\n"
        '- low: right in 82 of 90, counting an honest "uncertain" where the inputs cannot decide\n\n'
        "The rules were tuned on these cases. Before that, snapshot and log together were right on 40 of 47 recorded "
        "programs; on 18 further ones, recorded after the kinds of mistakes had been mended, they were right on 18.",
        ("uncertain",),
    ),
)
"""One page a code."""
