"""Reports made by hand, as rich as real ones, so that the renderers are tested without the rooms before them."""

from __future__ import annotations

import math
from dataclasses import replace

from oomctl.model.alloc_conf import ConfIssue
from oomctl.model.common import InputFile, Skipped, VersionRange
from oomctl.model.log import MemorySummary, OomEvent, Series, SummaryCell
from oomctl.model.report import (
    Band,
    Budget,
    CategoryRow,
    Contribution,
    Culprit,
    Device,
    EvidenceItem,
    HoleBucket,
    Holes,
    Identity,
    Mark,
    Piece,
    Remedy,
    ReplayEffect,
    Report,
    Request,
    SegmentBar,
    SegmentMap,
    StackLine,
    StepRow,
    Steps,
    TableNote,
    Timeline,
    Verdict,
    WhatIf,
    WhatIfRun,
)
from oomctl.model.stacks import Frame

MIB, GIB = 1 << 20, 1 << 30
SHA = "9f2c4be1a07d55e1c3d2a4b6f8091122334455667788990011223344556677aa"
TORCH = VersionRange((2, 11), (2, 11))
VERSION = "0.1.0"
USER = "/home/ada/project"
LIBRARY = "/usr/lib/python3/site-packages/torch"


def culprit(rank: int, where: str, size: int, blocks: int, total: int, role: str, **more: object) -> Culprit:
    """A culprit at "file:line function" with a plausible stack."""
    place, function = where.split(" ")
    file, line = place.split(":")
    stack = (
        *([StackLine(f"{USER}/{file}", int(line), function)] if function != "main" else []),
        StackLine(f"{USER}/train.py", 98, "main"),
        StackLine(f"{LIBRARY}/nn/modules/module.py", 1775, "_wrapped_call_impl", "library"),
        StackLine("", 0, "11 library frames", "folded"),
    )
    return Culprit(rank, f"{USER}/{file}", int(line), function, size, blocks, size / total, role, stack=stack, **more)  # type: ignore[arg-type]


def fragmentation() -> Report:
    """Half of the reserved memory idle in small holes; another process holds most of the card."""
    hole, chunk, count = 12 * MIB - MIB, 9 * MIB, 728
    live, reserved = chunk * count, 20 * MIB * count
    total, others, context = 143156 * MIB, 126064 * MIB, 512 * MIB
    request = 4 * GIB
    free = total - others - context - reserved
    points = 240
    event = tuple(range(0, points * 12, 12))
    grow = tuple(min(i / 120, 1.0) for i in range(points))
    active = tuple(
        int(2 * live * g) if i < 120 else int(2 * live - live * min((i - 119) / 110, 1.0)) for i, g in enumerate(grow)
    )
    held = tuple(min(int(live * g), a) for g, a in zip(grow, active, strict=True))
    segments = tuple(
        SegmentBar(
            0x7F0000000000 + i * 20 * MIB,
            20 * MIB,
            "large",
            False,
            0,
            (0, 0),
            chunk,
            (
                Piece(6 * MIB, "idle"),
                Piece(chunk, "live", 1, "holes.py:12 fill", chunk),
                Piece(5 * MIB, "idle"),
            ),
        )
        for i in range(40)
    )
    verdict = Verdict(
        "fragmentation",
        "granule_pinned",
        "OOM101",
        "high",
        "7.82 GiB of the 14.22 GiB reserved are idle, yet no hole can take the 4.00 GiB that need_contiguous "
        "(holes.py:24) asked for",
        (
            EvidenceItem(
                "The idle memory lies in 1,456 holes; the largest is 6.00 MiB, the request needs 4.00 GiB.",
                (("holes_count", 1456), ("largest_hole", 6 * MIB), ("need", request)),
            ),
            EvidenceItem(
                "Packed without holes the request would fit with 1.51 GiB to spare.", (("spare", 1546 * MIB),)
            ),
            EvidenceItem(
                "Each of the 728 segments of 20.00 MiB still holds a live block of fill (holes.py:12), so none can be "
                "returned.",
                (("segments_count", 728),),
            ),
        ),
        (Contribution("external", others, "Other processes hold 123.11 GiB of the card."),),
    )
    identity = Identity(2184, 2184, 728, 728)
    whatif = WhatIf(
        identity,
        17179869184,
        17100000000,
        17200000000,
        "",
        (
            WhatIfRun(
                "backend:cudaMallocAsync",
                int(16.81 * GIB),
                13104 * MIB,
                True,
                False,
                certainty="likely",
                notes=("the driver's own allocator is modelled, not replayed",),
                curve_event=event[::4],
                curve_reserved=tuple(a + 200 * MIB for a in active[::4]),
            ),
            WhatIfRun(
                "expandable_segments:True",
                13120 * MIB,
                13104 * MIB,
                False,
                True,
                failed_at=2867,
                retries=1,
                device_allocs=656,
                device_frees=0,
                curve_event=event[::4],
                curve_reserved=tuple(int(13120 * MIB * g) for g in grow[::4]),
            ),
            WhatIfRun("max_split_size_mb:128", reserved, 13104 * MIB, False, True, failed_at=2867, retries=1),
        ),
        notes=("The limit is the card less what others held at the failure.",),
    )
    return Report(
        VERSION,
        (
            InputFile(f"{USER}/dumps/snapshot.pickle.gz", "snapshot", "pickle protocol 4, gzip", TORCH, SHA, 181203),
            InputFile(f"{USER}/dumps/stderr.log", "oom_log", "text", TORCH, SHA[::-1], 1520),
        ),
        Device("cuda", 0, None, "NVIDIA H200"),
        verdict,
        TORCH,
        "",
        (ConfIssue("warning", "roundup_power2_divisions", "rounding to halves wastes up to a third of each block"),),
        Request(request, request, "large", 0, "holes.py:24 need_contiguous"),
        (
            OomEvent(
                gpu=0,
                tried_to_allocate=request,
                total_capacity=total,
                free=free,
                allocated=live,
                reserved_unallocated=reserved - live,
                this_process_in_use=reserved + context,
                process_in_use=others,
                process_pid=1472,
                processes=((1472, others),),
                wording="torch 2.4+",
                torch=VersionRange((2, 4), None),
                line=8,
                source=1,
                traceback=(Frame(f"{USER}/holes.py", 24, "need_contiguous"), Frame(f"{USER}/train.py", 98, "main")),
                text="CUDA out of memory. Tried to allocate 4.00 GiB.",
            ),
        ),
        budget=Budget(
            device_total=total,
            limit=total - others - context,
            limit_kind="device",
            other_processes=others,
            non_pytorch=context,
            free=free,
            unexplained=0,
            reserved=reserved,
            allocated=live,
            active=live,
            requested=live - 3 * MIB,
            rounding=3 * MIB,
            pending_free=0,
            idle_split=(hole - 0) * count,
            idle_whole_segments=0,
            idle_other_streams=0,
            idle_private_pools=0,
            shortage=request - free,
            largest_hole=6 * MIB,
            source="trace",
        ),
        culprits=(
            culprit(
                1,
                "holes.py:12 fill",
                live - 90 * MIB,
                718,
                live,
                "pinning",
                accumulation_point=True,
                source="    chunks.append(torch.empty(9 << 20, dtype=torch.uint8, device='cuda'))",
            ),
            culprit(
                2,
                "model/blocks/attention_with_a_long_name.py:1043 scaled_dot_product_attention",
                70 * MIB,
                6,
                live,
                "held",
                category="activations",
            ),
        ),
        culprits_rest_bytes=20 * MIB,
        culprits_rest_blocks=4,
        culprits_basis="live bytes at the failure",
        categories=(CategoryRow("activations", 70 * MIB, 6), CategoryRow("unknown", live - 70 * MIB, 722)),
        remedies=(
            Remedy(
                "code",
                "Allocate the long-lived chunks before the short-lived ones",
                None,
                None,
                "edit_code",
                "Every segment is pinned by one chunk that outlives its neighbours; first, they share segments.",
                ("The order of allocation changes, the values do not.",),
                location="holes.py:12 fill",
                example="keep = [torch.empty(n) for _ in range(728)]\nscratch = [torch.empty(n) for _ in range(728)]",
                slug="order_lifetimes",
            ),
            Remedy(
                "alloc_conf",
                "Use the driver's asynchronous allocator",
                "backend:cudaMallocAsync",
                "export PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync",
                "has_cost",
                "It maps physical pages behind any hole, so the request is served.",
                ("Not together with expandable_segments, max_split_size_mb or memory snapshots.",),
                ReplayEffect(True, int(16.81 * GIB), reserved, identity, "likely", ("the driver is modelled",)),
                slug="cuda_malloc_async",
            ),
        ),
        limits=(
            Skipped(
                "growth per step", "the trace holds no step marks and no period", "record with torch.profiler steps"
            ),
            Skipped("who process 1472 is", "the message gives only its number"),
        ),
        timeline=Timeline(
            event,
            tuple(1_764_000_000_000_000 + e * 410 + (e // 500) * 90_000 for e in event),
            active,
            tuple(int(reserved * g) for g in grow),
            (
                Band("holes.py:12 fill", 1, held),
                Band("everything else", 0, tuple(a - h for a, h in zip(active, held, strict=True))),
            ),
            (),
            (Mark(2867, "4.00 GiB refused", kind="fatal"),),
            2867,
            total - others - context,
            2868,
            True,
        ),
        holes=Holes(
            request,
            6 * MIB,
            1456,
            hole * count,
            (
                HoleBucket(4 * MIB, 8 * MIB, 1456, hole * count, False),
                HoleBucket(8 * MIB, 16 * MIB, 0, 0, False),
            ),
        ),
        segment_map=SegmentMap(segments, 688, 688 * 20 * MIB),
        whatif=whatif,
        fingerprint="fragmentation-3f9ac2d1",
    )


def leak() -> Report:
    """Losses kept over thirty steps; recovered failures before the fatal one."""
    steps, per_step, floor = 30, 410 * MIB, 9 * GIB
    rows = tuple(
        StepRow(
            i, f"ProfilerStep#{i}", i * 100, (i + 1) * 100, floor + per_step * i, floor + per_step * i + 2 * GIB, i < 2
        )
        for i in range(steps)
    )
    event = tuple(range(0, steps * 100, 10))
    ramp = tuple(floor + per_step * (e // 100) for e in event)
    saw = tuple(int(GIB * (1 + math.sin(e / 16))) for e in event)
    active = tuple(a + b for a, b in zip(ramp, saw, strict=True))
    kept = tuple(per_step * (e // 100) for e in event)
    live = active[-1]
    leaked = per_step * (steps - 1)
    return Report(
        VERSION,
        (InputFile("run/oom.pickle", "snapshot", "pickle protocol 4", TORCH, SHA, 17_401_223),),
        Device("cuda", 3, 3, "NVIDIA A100-SXM4-40GB"),
        Verdict(
            "leak",
            None,
            "OOM110",
            "high",
            "kept_losses (train.py:61) keeps 410.00 MiB more after every step: 11.61 GiB after 30 steps, without it "
            "the request of 1.00 GiB fits",
            (
                EvidenceItem("29 of 29 steps grew by 410.00 MiB at the same phase.", (("growth_per_step", per_step),)),
                EvidenceItem("The growth is 11.61 GiB, the shortage 512.00 MiB.", (("leaked", leaked),)),
                EvidenceItem("Parameters, gradients and optimizer state did not change.", ()),
            ),
        ),
        TORCH,
        "expandable_segments:True",
        (),
        Request(GIB, GIB, "large", 0, "model.py:40 forward"),
        (
            OomEvent(gpu=3, rank=3, tried_to_allocate=4 * GIB, recovered=True, wording="trace"),
            OomEvent(gpu=3, rank=3, tried_to_allocate=4 * GIB, recovered=True, wording="trace"),
            OomEvent(gpu=3, rank=3, tried_to_allocate=GIB, free=512 * MIB, allocated=live, wording="trace"),
        ),
        recovered_ooms=2,
        budget=Budget(
            device_total=None,
            limit=24 * GIB,
            limit_kind="fraction",
            reserved=live + GIB,
            allocated=live,
            active=live,
            requested=live - 9 * MIB,
            rounding=9 * MIB,
            pending_free=0,
            idle_split=GIB,
            idle_whole_segments=0,
            idle_other_streams=0,
            idle_private_pools=0,
            shortage=512 * MIB,
            largest_hole=300 * MIB,
            source="trace",
        ),
        culprits=(
            culprit(1, "train.py:98 main", leaked + floor, 243, live, "leaked", accumulation_point=True, caller=True),
            culprit(2, "train.py:61 kept_losses", leaked, 29, live, "leaked"),
            culprit(3, "model.py:12 __init__", floor, 214, live, "held", category="parameters"),
        ),
        culprits_rest_bytes=live - leaked - floor,
        culprits_rest_blocks=71,
        culprits_basis="live bytes at the failure",
        remedies=(
            Remedy(
                "code",
                "Keep the number, not the graph",
                None,
                None,
                "edit_code",
                "Each kept loss holds its whole graph; .item() or .detach() lets it go.",
                location="train.py:61 kept_losses",
                example="losses.append(loss.item())",
                slug="detach_losses",
            ),
        ),
        timeline=Timeline(
            event,
            None,
            active,
            tuple(a + GIB for a in active),
            (
                Band("train.py:61 kept_losses", 2, kept),
                Band("model.py:12 __init__", 3, (floor,) * len(event)),
                Band("everything else", 0, saw),
            ),
            tuple(Mark(r.first_event, r.label) for r in rows),
            (Mark(900, "4.00 GiB, recovered", kind="recovered"), Mark(2999, "1.00 GiB refused", kind="fatal")),
            2999,
            24 * GIB,
            3000,
            False,
        ),
        steps=Steps("annotation", "ProfilerStep", rows, steps, per_step, 2),
        fingerprint="leak-77aa01bc",
    )


def table() -> MemorySummary:
    """A memory_summary table with a cut cell."""

    def row(size: int, cut: bool = False) -> dict[str, SummaryCell]:
        cell = SummaryCell(size, size * 2, size * 90, None if cut else size * 89)
        return {"all": cell, "large": cell, "small": SummaryCell(0, 0, 0, 0)}

    return MemorySummary(
        0, 1, 3, False,
        {
            "Allocated memory": row(21 * GIB),
            "Active memory": row(21 * GIB),
            "Requested memory": row(20 * GIB),
            "GPU reserved memory": row(22 * GIB),
            "Non-releasable memory": row(800 * MIB, cut=True),
            "Allocations": row(1092),
            "GPU reserved segments": row(212),
            "Oversize allocations": {"all": SummaryCell(0, 0, 0, 0)},
        },
    )  # fmt: skip


def text_only() -> Report:
    """An OOM message, a memory_summary table and a printed series; nothing can be replayed."""
    total = 24 * GIB
    return Report(
        VERSION,
        (InputFile("-", "memory_summary", "text", VersionRange((2, 1), (2, 3)), None, 5221),),
        Device("cuda", 0),
        Verdict(
            "uncertain", None, "OOM090", "low",
            "the card is full: 21.00 GiB of 24.00 GiB are in use by tensors and 2.00 GiB were asked for; one moment "
            "cannot tell a leak from a model that is too large",
            (EvidenceItem("21.00 GiB allocated, 22.00 GiB reserved, 310.00 MiB free.", (("allocated", 21 * GIB),)),),
        ),
        VersionRange((2, 1), (2, 3)),
        None,
        (),
        Request(None, 2 * GIB),
        (
            OomEvent(gpu=0, tried_to_allocate=2 * GIB, total_capacity=total, free=310 * MIB, allocated=21 * GIB,
                     reserved_unallocated=GIB, wording="torch 2.1-2.3", line=40),
        ),
        memory_summaries=(table(),),
        table_notes=(
            TableNote(0, "Allocated memory", "Bytes that tensors hold now."),
            TableNote(0, "Non-releasable memory", "Idle but stuck beside live blocks: 800.00 MiB.", True),
        ),
        series=(Series("alloc", "allocated", tuple(float(i) for i in range(40)),
                       tuple(12 * GIB + i * 230 * MIB + (i % 3) * 90 * MIB for i in range(40)), 3),),
        budget=Budget(device_total=total, limit=total, limit_kind="device", outside=total - 22 * GIB - 310 * MIB,
                      free=310 * MIB, unexplained=0, reserved=22 * GIB, allocated=21 * GIB,
                      shortage=2 * GIB - 310 * MIB),
        remedies=(
            Remedy("operations", "Record a snapshot of the next failure", None, None, "safe",
                   "Only a trace shows what grew.", example="oomctl run -- python train.py", slug="record"),
        ),
        limits=(Skipped("what grew", "a message shows one moment", "oomctl run -- python train.py"),),
    )  # fmt: skip


def healthy() -> Report:
    """A healthy dump with little to say."""
    return Report(
        VERSION,
        (InputFile("snapshot.pickle", "snapshot", "pickle protocol 4", TORCH, SHA, 40_221),),
        Device("cuda", 0),
        Verdict("no_oom", None, "OOM001", "high", "nothing failed: the peak was 6.20 GiB of 23.64 GiB"),
        TORCH,
        "",
        budget=Budget(reserved=7 * GIB, allocated=6 * GIB, active=6 * GIB, requested=6 * GIB, rounding=0,
                      pending_free=0, idle_split=GIB, idle_whole_segments=0, idle_other_streams=0,
                      idle_private_pools=0, source="segments"),
    )  # fmt: skip


def hostile(
    name: str = "</script><img src=x onerror=alert(1)>[red]@octocat `x` | \x1b]8;;http://e.vil\x07\u202e",
) -> Report:
    """Every text of the fragmentation report that comes from a file is replaced by something nasty."""
    base = fragmentation()
    line = StackLine(name, 7, name)
    assert base.timeline is not None
    assert base.segment_map is not None
    return replace(
        base,
        inputs=(replace(base.inputs[0], path=name),),
        device=replace(base.device, name=name),
        alloc_conf=name,
        verdict=replace(base.verdict, headline=f"held by {name[:200]}"),
        request=replace(base.request or Request(), stack_label=name),
        culprits=tuple(replace(c, file=name, function=name, stack=(line,), source=name) for c in base.culprits),
        remedies=tuple(replace(r, location=name) for r in base.remedies),
        limits=(Skipped(name, name, name),),
        series=(Series(name, "unknown", (0.0, 1.0), (GIB, 2 * GIB)),),
        memory_summaries=(replace(table(), rows={name: {"all": SummaryCell(1, 2, 3, 4)}}),),
        timeline=replace(base.timeline, bands=tuple(replace(b, label=name) for b in base.timeline.bands)),
        segment_map=replace(
            base.segment_map,
            segments=tuple(
                replace(s, pieces=tuple(replace(p, label=name) for p in s.pieces))
                for s in base.segment_map.segments[:3]
            ),
        ),
    )


def ranks() -> Report:
    """Three devices, the failing one first."""
    other = replace(healthy(), device=Device("cuda", 1, 1))
    return replace(fragmentation(), others=(other, replace(leak(), device=Device("cuda", 2, 2))))


SAMPLES = {
    "fragmentation": fragmentation,
    "leak": leak,
    "text_only": text_only,
    "healthy": healthy,
    "hostile": hostile,
    "ranks": ranks,
}
"""Name to maker, for parametrised tests."""
