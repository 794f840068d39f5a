"""What a message, and the table printed with it, say in the allocator's own terms: one picture that rules can read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from oomctl.model.evidence import Evidence
from oomctl.model.log import MemoryStats, MemorySummary, OomEvent, Sign, SummaryCell
from oomctl.units import GIB, MIB

ORDINARY_CONTEXT: Final = 600 * MIB
"""Memory outside the allocator that any CUDA process has: context, kernels, library workspaces."""
CAP_IN_FORCE: Final = 0.97
"""An "allowed" figure below this share of the card is a limit of its own; at 100 % it is only printed."""


@dataclass(frozen=True, slots=True)
class Table:
    """The totals of a memory_summary table (or of memory_stats); bytes, None where the text shows none."""

    cur: int | None = None
    peak: int | None = None
    total_alloc: int | None = None
    active: int | None = None
    requested: int | None = None
    reserved: int | None = None
    reserved_peak: int | None = None
    reserved_freed: int | None = None
    non_releasable: int | None = None
    ooms: int | None = None
    retries: int | None = None

    @property
    def turnover(self) -> float | None:
        """Bytes ever allocated over the highest live bytes: about 1 while a program only builds up."""
        if self.total_alloc is None or not self.peak:
            return None
        return self.total_alloc / self.peak

    @property
    def rounding(self) -> int | None:
        """Bytes inside live blocks that nobody asked for."""
        if self.requested is None or self.active is None:
            return None
        return max(self.active - self.requested, 0)

    @property
    def given_back(self) -> int | None:
        """Live bytes at the peak that are gone now."""
        if self.cur is None or self.peak is None:
            return None
        return max(self.peak - self.cur, 0)


@dataclass(frozen=True, slots=True)
class Picture:
    """One failure; bytes, None where the text does not say.

    Attributes:
        event: The failure.
        table: The table printed with it, or None.
        request: "Tried to allocate".
        total: The card.
        limit: What the allocator may reach: the fraction cap if one is in force, else the card.
        capped: Whether a fraction cap is in force.
        free: Free on the device.
        live: Allocated, without the idle memory of private pools.
        idle: Reserved but unallocated, outside private pools.
        pools: Idle memory of private pools.
        reserved: All of the allocator's memory.
        room: What the allocator could still have taken: the limit less reserved, or what the device has free.
        outside: Memory of the card outside this allocator.
        others: Of that, in other processes.
        non_pytorch: Of that, in this process.
    """

    event: OomEvent
    table: Table | None
    request: int | None
    total: int | None
    limit: int | None
    capped: bool
    free: int | None
    live: int | None
    idle: int | None
    pools: int | None
    reserved: int | None
    room: int | None
    outside: int | None
    others: int | None
    non_pytorch: int | None

    def share(self, part: int | None) -> float:
        """A part of the limit, 0 where either is unknown."""
        return part / self.limit if part is not None and self.limit else 0.0

    @property
    def told_apart(self) -> bool:
        """Whether the text tells this process's memory outside the allocator from that of others."""
        return self.others is not None and self.non_pytorch is not None

    @property
    def foreign(self) -> float:
        """Share of the card outside the allocator, beyond an ordinary context."""
        if self.outside is None or not self.total:
            return 0.0
        return max(self.outside - ORDINARY_CONTEXT, 0) / self.total

    @property
    def breaks_off(self) -> bool:
        """Whether the message names the card and ends before it says what is allocated, as all that name it go on to.

        "of which 12.00 MiB is free" and "X allowed" may then be missing too.
        """
        return self.event.total_capacity is not None and self.event.allocated is None

    @property
    def unaccounted(self) -> int | None:
        """Where the message does not say what is reserved: memory of the card that is neither free nor live."""
        if self.reserved is not None or self.total is None or self.free is None or self.live is None:
            return None
        return max(self.total - self.free - self.live, 0)

    @property
    def idle_ratio(self) -> float:
        """Idle over reserved."""
        return self.idle / self.reserved if self.idle is not None and self.reserved else 0.0

    @property
    def within_reach(self) -> int | None:
        """What the program could have had: the limit, less what is held outside when no cap is in force."""
        if self.limit is None:
            return None
        if self.capped or self.outside is None:
            return self.limit
        return max(self.limit - max(self.outside - ORDINARY_CONTEXT, 0), 1)


def picture(event: OomEvent, table: Table | None) -> Picture:
    """Puts a message's figures, old and new wordings alike, into the same terms.

    Args:
        event: The failure.
        table: The table that was printed with it, or None.
    """
    pools = event.private_pools
    live = None if event.allocated is None else event.allocated - min(pools or 0, event.allocated)
    idle = event.reserved_unallocated
    if idle is None and event.reserved is not None and event.allocated is not None:
        idle = max(event.reserved - event.allocated, 0)
    if idle is None:
        idle = event.cached_unallocated
    reserved = event.reserved
    if reserved is None and event.allocated is not None and idle is not None:
        reserved = event.allocated + idle
    total = event.total_capacity if event.backend != "mps" else event.max_allowed
    allowed = event.allowed
    capped = allowed is not None and total is not None and allowed < CAP_IN_FORCE * total
    if capped and allowed is not None and reserved is not None and event.tried_to_allocate is not None:
        # Only a cap that the request would exceed is what stopped it (figures are printed to 0.01 GiB).
        capped = allowed - reserved < event.tried_to_allocate + GIB // 100
    limit = allowed if capped else total
    outside = others = non_pytorch = None
    if event.backend == "mps":
        outside = event.other_allocations
        reserved = event.allocated
    elif total is not None and event.free is not None and reserved is not None:
        outside = max(total - event.free - reserved, 0) if reserved <= total else None
    if reserved is not None and event.this_process_in_use is not None:
        non_pytorch = max(event.this_process_in_use - reserved, 0)
        others = sum(size for _, size in event.processes)
    elif reserved is not None and len(event.processes) == 1 and event.processes[0][1] >= reserved:
        # In a PID namespace the process itself is printed as "Process N".
        non_pytorch, others = event.processes[0][1] - reserved, 0
    elif reserved is not None and event.processes:
        sizes = [size for _, size in event.processes]
        own = [size for size in sizes if 0 <= size - reserved <= ORDINARY_CONTEXT]
        # There, one of several may be the process itself: the only one that can hold just what is reserved.
        if len(own) == 1 and outside is not None and sum(sizes) > outside + GIB:
            non_pytorch, others = own[0] - reserved, sum(sizes) - own[0]
        else:
            others = sum(sizes)
    if outside is not None and others is not None and others > outside + GIB:
        others = None
    room = event.free
    if capped and limit is not None and reserved is not None:
        room = max(limit - reserved, 0)
        if event.free is not None:
            room = min(room, event.free)
    elif event.backend == "mps" and limit is not None and reserved is not None:
        room = max(limit - reserved - (outside or 0), 0)
    return Picture(
        event,
        table,
        event.tried_to_allocate,
        total,
        limit,
        capped,
        event.free,
        live,
        idle,
        pools,
        reserved,
        room,
        outside,
        others,
        non_pytorch,
    )


def _cell(summary: MemorySummary, label: str) -> SummaryCell:
    pools = summary.rows.get(label, {})
    return pools.get("all", SummaryCell(None, None, None, None))


def from_summary(summary: MemorySummary) -> Table:
    """The totals of a printed table."""
    allocated, reserved = _cell(summary, "Allocated memory"), _cell(summary, "GPU reserved memory")
    return Table(
        cur=allocated.cur,
        peak=allocated.peak,
        total_alloc=allocated.total_alloc,
        active=_cell(summary, "Active memory").cur,
        requested=_cell(summary, "Requested memory").cur,
        reserved=reserved.cur,
        reserved_peak=reserved.peak,
        reserved_freed=reserved.total_freed,
        non_releasable=_cell(summary, "Non-releasable memory").cur,
        ooms=summary.num_ooms,
        retries=summary.num_alloc_retries,
    )


def from_stats(stats: MemoryStats) -> Table:
    """The totals of memory_stats counters."""
    get = stats.values.get
    return Table(
        cur=get("allocated_bytes.all.current"),
        peak=get("allocated_bytes.all.peak"),
        total_alloc=get("allocated_bytes.all.allocated"),
        active=get("active_bytes.all.current"),
        requested=get("requested_bytes.all.current"),
        reserved=get("reserved_bytes.all.current"),
        reserved_peak=get("reserved_bytes.all.peak"),
        reserved_freed=get("reserved_bytes.all.freed"),
        non_releasable=get("inactive_split_bytes.all.current"),
        ooms=get("num_ooms"),
        retries=get("num_alloc_retries"),
    )


def tables(evidence: Evidence) -> list[tuple[int | None, int | None, Table]]:
    """(device, rank, totals) of every table and set of counters that holds anything; tables of idle GPUs are left "
    "out."""
    out: list[tuple[int | None, int | None, Table]] = []
    for summary in evidence.memory_summaries:
        table = from_summary(summary)
        out.append((summary.device, summary.rank, table))
    for stats in evidence.memory_stats:
        out.append((None, stats.rank, from_stats(stats)))
    busy = [row for row in out if row[2].peak or row[2].ooms or row[2].retries or row[2].reserved]
    return busy or out


def table_for(event: OomEvent, evidence: Evidence) -> Table | None:
    """The table that was printed at this failure: same device and rank, and it counts at least one OOM."""
    fitting = [
        table
        for device, rank, table in tables(evidence)
        if (device is None or event.gpu is None or device == event.gpu)
        and (rank is None or event.rank is None or rank == event.rank)
        and (table.ooms or 0) > 0
    ]
    return fitting[-1] if fitting else None


def has(signs: Iterable[Sign], *kinds: str) -> Sign | None:
    """The first sign of one of these kinds."""
    return next((sign for sign in signs if sign.kind in kinds), None)


def steps_before(event: OomEvent, evidence: Evidence) -> int | None:
    """How many steps the text shows before this failure; None where it shows no counter."""
    counts = [
        sign.count
        for sign in evidence.signs
        if sign.kind == "progress" and sign.count is not None and sign.line < event.line and sign.source == event.source
    ]
    if counts:
        return max(counts)
    after = [
        sign.count
        for sign in evidence.signs
        if sign.kind == "progress" and sign.count is not None and 0 < sign.line - event.line <= 12
    ]
    return min(after) if after and min(after) == 0 else None


_TRIAL: Final = re.compile(r"trial\s*#?\s*(\d+)", re.IGNORECASE)


def trial(evidence: Evidence) -> int | None:
    """Number of the trial (of a search that runs many in one process) that failed, where the text names one."""
    for sign in evidence.signs:
        if sign.kind == "trial":
            match = _TRIAL.search(sign.text)
            if match:
                return int(match[1])
    return None
