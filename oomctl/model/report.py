"""`Report`: what is concluded from the evidence; a renderer gets this and nothing else.

Sizes are bytes. None means "could not be told" and is never replaced by 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from oomctl.model.alloc_conf import ConfIssue
from oomctl.model.common import InputFile, Skipped, VersionRange
from oomctl.model.log import MemorySummary, OomEvent, Series
from oomctl.model.notebook import Shown
from oomctl.model.ranks import Job

CLASSES = (
    "fragmentation",
    "leak",
    "transient_peak",
    "capacity",
    "external",
    "host_oom",
    "not_an_oom",
    "no_oom",
    "uncertain",
)
"""Slugs of `Verdict.cls`, in the order of `oomctl explain`."""

CONFIDENCES = ("high", "medium", "low")


@dataclass(frozen=True, slots=True)
class Device:
    """The device that failed (or the one reported on)."""

    backend: str = "cuda"
    index: int | None = None
    rank: int | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class EvidenceItem:
    """One statement of the verdict's evidence with the numbers that carry it.

    Attributes:
        statement: A plain sentence, numbers in binary units.
        numbers: (name, value) pairs; bytes unless the name ends in "_count", "_ratio", "_steps" or "_us".
    """

    statement: str
    numbers: tuple[tuple[str, int | float], ...] = ()


@dataclass(frozen=True, slots=True)
class Contribution:
    """Another class that took part, and the bytes that its absence would free."""

    cls: str
    share: int
    statement: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The class of the failure.

    Attributes:
        cls: One of `CLASSES`.
        subtype: For example split_segments, stream_stranded, private_pools, rounding, granule_pinned, or None.
        code: Stable code, for example OOM103; `oomctl explain OOM103` prints its page.
        confidence: high, medium or low.
        headline: One plain sentence with the numbers in it.
        evidence: Three to six statements.
        contributing: Other classes, largest share first.
    """

    cls: str
    subtype: str | None
    code: str
    confidence: str
    headline: str
    evidence: tuple[EvidenceItem, ...] = ()
    contributing: tuple[Contribution, ...] = ()


@dataclass(frozen=True, slots=True)
class Request:
    """The request that failed.

    Attributes:
        size: Bytes as the allocator rounds it; None when only a message is known.
        segment_size: Bytes of the segment that it would take ("Tried to allocate").
        pool: "small" or "large".
        stream: Raw stream handle.
        stack_label: "file:line function" of the user frame that asked.
        pool_id: Private pool, or None for the default one.
    """

    size: int | None = None
    segment_size: int | None = None
    pool: str | None = None
    stream: int | None = None
    stack_label: str | None = None
    pool_id: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """The books at the moment of the failure; they close.

    device_total = other_processes + non_pytorch + reserved + free + unexplained
    reserved = requested + rounding + pending_free + idle_split + idle_whole_segments + idle_other_streams
               + idle_private_pools

    Attributes:
        device_total: The card, or None when no input says.
        limit: What stops the allocator: the fraction cap if one is in force, else the card less what others hold.
        limit_kind: "fraction", "device" or None.
        other_processes: Memory of other processes.
        non_pytorch: Memory of this process outside the allocator (context, libraries).
        outside: other_processes + non_pytorch where they cannot be told apart.
        free: Free on the device.
        unexplained: Remainder; 0 when the books close.
        reserved: By this allocator.
        allocated: torch's allocated: bytes of blocks in use by tensors (pending frees excluded).
        active: Blocks in use, pending frees included.
        requested: Bytes the program asked for inside the active blocks.
        rounding: Active less requested.
        pending_free: Freed by the program, awaiting another stream.
        idle_split: Free parts of segments of the right pool and stream that also hold live blocks.
        idle_whole_segments: Segments without a live block (a flush returns these).
        idle_other_streams: Free parts that belong to other streams (or to the other of small and large pool).
        idle_private_pools: Free parts inside private pools.
        shortage: Bytes missing for the request, or None.
        largest_hole: Largest free block that the request could have used, or None.
        source: "trace", "segments", "message" or "memory_summary".
    """

    device_total: int | None = None
    limit: int | None = None
    limit_kind: str | None = None
    other_processes: int | None = None
    non_pytorch: int | None = None
    outside: int | None = None
    free: int | None = None
    unexplained: int | None = None
    reserved: int | None = None
    allocated: int | None = None
    active: int | None = None
    requested: int | None = None
    rounding: int | None = None
    pending_free: int | None = None
    idle_split: int | None = None
    idle_whole_segments: int | None = None
    idle_other_streams: int | None = None
    idle_private_pools: int | None = None
    shortage: int | None = None
    largest_hole: int | None = None
    source: str = "message"


@dataclass(frozen=True, slots=True)
class StackLine:
    """One line of a folded stack, user frames first.

    Attributes:
        file: Path as recorded.
        line: Line number, 0 unknown.
        function: Name.
        kind: "user", "library" or "folded" (then `function` says how many frames were folded).
    """

    file: str
    line: int
    function: str
    kind: str = "user"


@dataclass(frozen=True, slots=True)
class Culprit:
    """Who holds the bytes.

    Attributes:
        rank: 1 is the first.
        file: Path of the frame.
        line: Line number.
        function: Name.
        bytes: Bytes that the frame owns.
        blocks: Blocks that it owns.
        share: bytes over the bytes that the ranking is about.
        role: leaked, peak, requested, pinning or held.
        accumulation_point: True on the deepest caller that owns most of the bytes.
        stack: User frames first, library frames folded.
        source: The line's text where the file is at hand.
        category: parameters, gradients, optimizer_state, activations, ... or None.
        caller: True on a row that calls others of the list: its bytes are theirs and count in no sum.
    """

    rank: int
    file: str
    line: int
    function: str
    bytes: int
    blocks: int
    share: float
    role: str
    accumulation_point: bool = False
    stack: tuple[StackLine, ...] = ()
    source: str | None = None
    category: str | None = None
    caller: bool = False


@dataclass(frozen=True, slots=True)
class Identity:
    """How well the model reproduces the recording under its own settings.

    Attributes:
        allocs: Recorded allocations.
        exact: Of these, placed at the recorded address.
        segments: Recorded segment events.
        segments_exact: Of these, reproduced.
        reason: Why it is not exact, or "".
    """

    allocs: int
    exact: int
    segments: int
    segments_exact: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ReplayEffect:
    """What replay says about a remedy."""

    served: bool | None
    peak_reserved: int | None
    peak_reserved_before: int | None
    identity: Identity | None
    certainty: str = "firm"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remedy:
    """One piece of advice.

    Attributes:
        kind: alloc_conf, code or operations.
        title: One line.
        alloc_conf: "expandable_segments:True"; "" advises to drop the settings in force; None if it is no setting.
        env: The whole line to paste, or None.
        applicability: safe, has_cost or edit_code.
        why: One or two sentences.
        caveats: What it costs or must not be combined with.
        replay: What replay says, or None.
        location: "file:line function" that it is about, or None.
        example: A few lines of code, or None.
        slug: Stable name of the catalogue entry.
    """

    kind: str
    title: str
    alloc_conf: str | None
    env: str | None
    applicability: str
    why: str
    caveats: tuple[str, ...] = ()
    replay: ReplayEffect | None = None
    location: str | None = None
    example: str | None = None
    slug: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A step or another event on the timeline; `event` is a trace index, `time_us` absolute where known."""

    event: int
    label: str
    time_us: int | None = None
    kind: str = "step"


@dataclass(frozen=True, slots=True)
class Band:
    """Live bytes of one owner at each point of the timeline; rank 0 is everything else."""

    label: str
    rank: int
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """Memory over the trace, thinned.

    Attributes:
        event: Trace index of each point (state after that event).
        time_us: Time of each point, or None without a clock.
        active: Live bytes at each point.
        reserved: Reserved bytes at each point.
        bands: Live bytes split by owner; they sum to `active`.
        steps: Step marks.
        ooms: Failures; the fatal one has kind "fatal", recovered ones "recovered".
        moment: Trace index of the moment that the report is about.
        limit: Limit in bytes, or None.
        events_total: Events in the trace.
        thinned: True when points were dropped (peaks of each interval are kept).
    """

    event: tuple[int, ...]
    time_us: tuple[int, ...] | None
    active: tuple[int, ...]
    reserved: tuple[int, ...]
    bands: tuple[Band, ...]
    steps: tuple[Mark, ...]
    ooms: tuple[Mark, ...]
    moment: int
    limit: int | None
    events_total: int
    thinned: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a segment.

    Attributes:
        size: Bytes.
        state: live, pending, idle, idle_other_stream, idle_private_pool or mixed (several blocks merged for display).
        owner: Rank of the culprit that owns it, 0 for others.
        label: "file:line function" of its stack, or "".
        live: Live bytes within (for mixed pieces).
    """

    size: int
    state: str
    owner: int = 0
    label: str = ""
    live: int = 0


@dataclass(frozen=True, slots=True)
class SegmentBar:
    """One segment at the moment of the failure."""

    address: int
    size: int
    kind: str
    expandable: bool
    stream: int
    pool_id: tuple[int, int]
    live: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class SegmentMap:
    """Segments at the moment, largest idle first; `dropped` ones are only summed."""

    segments: tuple[SegmentBar, ...]
    dropped: int = 0
    dropped_bytes: int = 0


@dataclass(frozen=True, slots=True)
class HoleBucket:
    """Free blocks with low <= size < high."""

    low: int
    high: int
    count: int
    bytes: int
    fits: bool


@dataclass(frozen=True, slots=True)
class Holes:
    """Free blocks of the right pool and stream against the request."""

    need: int | None
    largest: int
    count: int
    bytes: int
    buckets: tuple[HoleBucket, ...]


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step.

    Attributes:
        index: 0-based.
        label: Annotation name or "step N".
        first_event: Trace index.
        last_event: Trace index (exclusive).
        floor: Live bytes when it began (same phase in every step).
        peak: Highest live bytes within it.
        warmup: True for steps before memory settled.
    """

    index: int
    label: str
    first_event: int
    last_event: int
    floor: int
    peak: int
    warmup: bool = False


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps of the program.

    Attributes:
        source: "annotation", "period" or "none".
        name: What marks them, for example "ProfilerStep".
        rows: At most 2,000, evenly thinned.
        total: Number of steps found.
        growth_per_step: Bytes per step that never came back, or None.
        steps_to_oom: Steps until the next failure at this rate, or None.
    """

    source: str
    name: str
    rows: tuple[StepRow, ...]
    total: int
    growth_per_step: int | None = None
    steps_to_oom: int | None = None


@dataclass(frozen=True, slots=True)
class WhatIfRun:
    """One setting, replayed.

    Attributes:
        alloc_conf: The setting; "" is the defaults.
        peak_reserved: Bytes.
        peak_allocated: Bytes.
        served: Whether the failing request would have been served; None if there was none or it is open.
        oom: Whether any request failed in the replay.
        failed_at: Trace index of the first failing request, or None.
        retries: Flush-and-retry count.
        device_allocs: Driver calls that allocated.
        device_frees: Driver calls that freed.
        smallest_limit: Smallest limit at which the whole trace runs (`--fit`), or None.
        certainty: firm, likely, open or estimate.
        notes: What weakens it.
        curve_event: Trace indices of the thinned reserved curve.
        curve_reserved: Bytes at these.
    """

    alloc_conf: str
    peak_reserved: int | None
    peak_allocated: int | None
    served: bool | None
    oom: bool | None
    failed_at: int | None = None
    retries: int | None = None
    device_allocs: int | None = None
    device_frees: int | None = None
    smallest_limit: int | None = None
    certainty: str = "firm"
    notes: tuple[str, ...] = ()
    curve_event: tuple[int, ...] = ()
    curve_reserved: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Replays of one trace under several settings, best first.

    Attributes:
        identity: The model's credential.
        limit: Bytes that the replays ran under, or None where it is not known or there is none.
        limit_low: Bytes; the limit is at least this. None for no limit.
        limit_high: Bytes; the limit is at most this. None for no limit.
        recorded_conf: Settings of the recording; "" is the defaults.
        runs: One a setting.
        complete: Every setting was replayed.
        notes: What holds for all runs.
    """

    identity: Identity
    limit: int | None
    limit_low: int | None
    limit_high: int | None
    recorded_conf: str
    runs: tuple[WhatIfRun, ...]
    complete: bool = True
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CategoryRow:
    """Live bytes at the moment by kind of tensor; slug is "unknown" where it could not be told."""

    category: str
    bytes: int
    blocks: int


@dataclass(frozen=True, slots=True)
class TableNote:
    """A remark on a memory_summary row: what it is, and whether it gives cause for doubt."""

    table: int
    row: str
    text: str
    doubt: bool = False


@dataclass(frozen=True, slots=True)
class Report(Shown):
    """One incident on one device, concluded. See json.md's keys for those without a remark."""

    oomctl_version: str
    inputs: tuple[InputFile, ...]
    device: Device
    verdict: Verdict
    torch: VersionRange = VersionRange()
    alloc_conf: str | None = None
    conf_issues: tuple[ConfIssue, ...] = ()
    request: Request | None = None
    oom_events: tuple[OomEvent, ...] = ()
    recovered_ooms: int = 0
    memory_summaries: tuple[MemorySummary, ...] = ()
    table_notes: tuple[TableNote, ...] = ()
    series: tuple[Series, ...] = ()
    budget: Budget | None = None
    culprits: tuple[Culprit, ...] = ()
    culprits_rest_bytes: int = 0
    culprits_rest_blocks: int = 0
    culprits_basis: str = ""
    categories: tuple[CategoryRow, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    limits: tuple[Skipped, ...] = ()
    timeline: Timeline | None = None
    steps: Steps | None = None
    holes: Holes | None = None
    segment_map: SegmentMap | None = None
    whatif: WhatIf | None = None
    fingerprint: str = ""
    others: tuple[Report, ...] = ()
    """Reports on the other devices or ranks of the same inputs, in order."""
    job: Job | None = None
    """All ranks of the run; this report and `others` are then about the notable ones."""
