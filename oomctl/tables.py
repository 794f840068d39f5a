"""pandas views of what was read and concluded; every column has a unit and a type, listed in `COLUMNS`.

Sums equal the books: the sizes of `blocks` are the reserved bytes, its active rows the active bytes, `culprits` sums to
the active bytes, the last row of `timeline` is the state that the file ends with. Missing is `<NA>`, never 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from oomctl.analysis import holdings as holders
from oomctl.analysis.choose import chosen_device
from oomctl.analysis.curves import active_curve, pending_curve, reserved_curve
from oomctl.analysis.frames import frame_kind, label, user_frames
from oomctl.analysis.lives import Lives, lives
from oomctl.analysis.moment import heap_at
from oomctl.errors import OomctlError
from oomctl.model.alloc_conf import AllocConf, conf_from_recorded
from oomctl.model.evidence import Evidence
from oomctl.model.report import WhatIf
from oomctl.model.snapshot import Action, Snapshot

Source = Evidence | Snapshot
"""What tables are made from: what `oomctl.load` gives, or one snapshot of it."""

CHUNK: Final = 50_000
"""Rows of `events` that are made at a time where a file is written."""

ACTIONS: Final = tuple(action.name.lower() for action in Action)
STATES: Final = ("inactive", "active_allocated", "active_pending_free")
KINDS: Final = ("user", "library", "cpp")
TEXT: Final = "text"
"""Stands for the type of strings that every pandas has: `StringDtype` kept by Python."""


class Column(NamedTuple):
    """One column of a table.

    Attributes:
        name: Its name.
        dtype: Of pandas; "text" is `StringDtype("python")`, "action", "state" and "kind" are categories.
        unit: bytes, microseconds, a number of something, or "" for names.
        text: What it says.
    """

    name: str
    dtype: str
    unit: str
    text: str


COLUMNS: Final[Mapping[str, tuple[Column, ...]]] = {
    "events": (
        Column("event", "int64", "number", "Index in the trace, from 0."),
        Column("action", "action", "", "alloc, free_requested, free_completed, segment_alloc ... oom."),
        Column("address", "uint64", "address", "Start of the block or segment; 0 for oom."),
        Column("size", "int64", "bytes", "As recorded: the request for alloc and frees, the rounded one for oom."),
        Column("stream", "uint64", "handle", "CUDA stream, 0 is the default one."),
        Column("stack", "Int32", "number", "Row group of `stacks`; missing where no frames were recorded."),
        Column("time_us", "Int64", "microseconds", "Since the epoch; missing before torch 2.2."),
        Column("pool", TEXT, "", "Id of the memory pool, where events carry it (torch 2.12 and later)."),
        Column("context", TEXT, "", "compile_context (torch 2.8 and later)."),
        Column("metadata", TEXT, "", "user_metadata (torch 2.10 and later)."),
        Column("device_free", "Int64", "bytes", "Free on the card, as the driver reported it; oom events only."),
        Column("active", "int64", "bytes", "Live after the event, pending frees included."),
        Column("allocated", "int64", "bytes", "Live after the event, without what waits for another stream."),
        Column("reserved", "int64", "bytes", "Held from the driver after the event."),
        Column("where", TEXT, "", "The user's innermost frame, as file:line function."),
    ),
    "blocks": (
        Column("address", "uint64", "address", "Start."),
        Column("size", "int64", "bytes", "Of the block; the sizes of one segment sum to the segment."),
        Column("requested", "int64", "bytes", "What the program asked for; 0 where it is idle."),
        Column("state", "state", "", "inactive, active_allocated or active_pending_free."),
        Column("segment", "uint64", "address", "Start of its segment."),
        Column("born", "Int64", "number", "Event that allocated it; missing for idle ones and those from before."),
        Column("stack", "Int32", "number", "Where it was allocated, a row group of `stacks`."),
        Column("where", TEXT, "", "The user's innermost frame, as file:line function."),
    ),
    "segments": (
        Column("address", "uint64", "address", "Start; a mapped range of an expandable segment is a row of its own."),
        Column("size", "int64", "bytes", "Reserved bytes."),
        Column("active", "int64", "bytes", "Live bytes in it."),
        Column("idle", "int64", "bytes", "The rest."),
        Column("largest_hole", "int64", "bytes", "Largest idle stretch."),
        Column("live_blocks", "int64", "number", "Blocks in use."),
        Column("stream", "uint64", "handle", "CUDA stream that it belongs to."),
        Column("pool", TEXT, "", "Id of the memory pool; (0, 0) is the default one."),
        Column("is_large", "bool", "", "Of the pool for requests over 1 MiB."),
        Column("is_expandable", "bool", "", "A range of an expandable segment."),
    ),
    "stacks": (
        Column("stack", "int32", "number", "What the column `stack` of the other tables means."),
        Column("depth", "int32", "number", "0 is the innermost frame."),
        Column("file", TEXT, "", "As recorded."),
        Column("line", "int64", "number", "0 where it is not known."),
        Column("function", TEXT, "", "Name."),
        Column("kind", "kind", "", "user, library or cpp."),
    ),
    "culprits": (
        Column("bytes", "int64", "bytes", "Live bytes; they sum to the active bytes of the moment."),
        Column("blocks", "int64", "number", "Live blocks."),
        Column("share", "float64", "of the live bytes", "0 to 1."),
        Column("file", TEXT, "", "Of the user's innermost frame."),
        Column("line", "int64", "number", "0 where it is not known."),
        Column("function", TEXT, "", "Name, or what the row is where there is no frame."),
        Column("stacks", "int64", "number", "Distinct stacks in the row."),
    ),
    "timeline": (
        Column("event", "int64", "number", "Index in the trace."),
        Column("time_us", "Int64", "microseconds", "Since the epoch; missing before torch 2.2."),
        Column("active", "int64", "bytes", "Live after the event, pending frees included."),
        Column("allocated", "int64", "bytes", "Live after the event, without what waits for another stream."),
        Column("reserved", "int64", "bytes", "Held from the driver."),
        Column("idle", "int64", "bytes", "Reserved and not active."),
    ),
    "whatif": (
        Column("alloc_conf", TEXT, "", 'The setting; "" is the defaults.'),
        Column("peak_reserved", "Int64", "bytes", "Highest reserved bytes of the replay."),
        Column("peak_allocated", "Int64", "bytes", "Highest allocated bytes of the replay."),
        Column("served", "boolean", "", "Whether the failing request is served; missing where it is open."),
        Column("oom", "boolean", "", "Whether any request failed in the replay."),
        Column("failed_at", "Int64", "number", "Trace index of the first that failed."),
        Column("retries", "Int64", "number", "Times that the caches were flushed for a request."),
        Column("device_allocs", "Int64", "number", "Driver calls that gave memory."),
        Column("device_frees", "Int64", "number", "Driver calls that took memory back."),
        Column("smallest_limit", "Int64", "bytes", "Least limit under which all is served, if it was asked for."),
        Column("certainty", TEXT, "", "firm, likely, open or estimate."),
        Column("notes", TEXT, "", "What weakens it."),
    ),
}
"""Tables by name, with their columns in order."""


def events(source: Source, device: int | None = None) -> pd.DataFrame:
    """The trace of one device, a row an event, with the state after it.

    Args:
        source: What was read.
        device: Device ordinal; by default the one that failed, else the one with the longest trace.

    Raises:
        OomctlError: There is no trace.
    """
    parts = list(event_chunks(source, device))
    return pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0]


def event_chunks(source: Source, device: int | None = None, rows: int = CHUNK) -> Iterator[pd.DataFrame]:
    """`events` in pieces, at least one, so that a file of any length is written in bounded memory.

    Args:
        source: What was read.
        device: As for `events`.
        rows: Rows of a piece.

    Raises:
        OomctlError: There is no trace.
    """
    view = _View(source, device)
    trace = view.need_trace()
    active, allocated, reserved = view.curves()
    names = view.names(trace.stack)
    pools = pd.array([str(pool) for pool in view.device.pools], view.text)
    texts = pd.array(list(trace.texts), view.text)
    for low in range(0, max(len(trace), 1), rows):
        part = slice(low, min(low + rows, len(trace)))
        numbers = np.arange(part.start, part.stop)
        free = pd.array([trace.device_free.get(i) for i in numbers.tolist()], "Int64")
        columns = {
            "event": numbers,
            "action": trace.action[part],
            "address": trace.address[part],
            "size": trace.size[part],
            "stream": trace.stream[part],
            "stack": _stack_numbers(trace.stack[part]),
            "time_us": None if trace.time_us is None else trace.time_us[part],
            "pool": None if trace.pool is None else _named(pools, trace.pool[part]),
            "context": None if trace.context is None else _named(texts, trace.context[part]),
            "metadata": None if trace.metadata is None else _named(texts, trace.metadata[part]),
            "device_free": free,
            "active": active[part],
            "allocated": allocated[part],
            "reserved": reserved[part],
            "where": _named(names, trace.stack[part]),
        }
        yield _frame("events", columns, part.stop - part.start)


def blocks(source: Source, device: int | None = None, at: str = "end") -> pd.DataFrame:
    """Every block, live and idle, of one device at a moment; sizes sum to the reserved bytes.

    Args:
        source: What was read.
        device: As for `events`.
        at: "oom", "peak", "end" or the index of an event.

    Raises:
        OomctlError: There is no such moment.
    """
    view = _View(source, device)
    heap = view.heap(at)
    live, found = heap.live, view.lives
    state = np.concatenate([np.where(heap.live_pending, 2, 1), np.zeros(len(heap.hole_size), np.int64)])
    idle = np.zeros(len(heap.hole_size), np.int64)
    address = np.concatenate([found.address[live], heap.hole_address])
    born = np.concatenate([found.born[live], idle - 1])
    stack = np.concatenate([found.stack[live], (idle - 1).astype(np.int32)])
    requested = np.minimum(found.requested[live], heap.live_size)
    columns = {
        "address": address,
        "size": np.concatenate([heap.live_size, heap.hole_size]),
        "requested": np.concatenate([requested, idle]),
        "state": state.astype(np.int8),
        "segment": heap.address[np.concatenate([heap.live_segment, heap.hole_segment])],
        "born": pd.array(np.where(born < 0, 0, born), "Int64"),
        "stack": _stack_numbers(stack),
        "where": _named(view.names(stack), stack),
    }
    table = _frame("blocks", columns, len(address))
    table.loc[born < 0, "born"] = pd.NA
    return table.sort_values("address", kind="stable", ignore_index=True)


def segments(source: Source, device: int | None = None, at: str = "end") -> pd.DataFrame:
    """Every segment of one device at a moment; sizes sum to the reserved bytes.

    Args:
        source: What was read.
        device: As for `events`.
        at: As for `blocks`.

    Raises:
        OomctlError: There is no such moment.
    """
    view = _View(source, device)
    heap = view.heap(at)
    live = heap.live_bytes_by_segment()
    largest = np.zeros(len(heap.size), np.int64)
    np.maximum.at(largest, heap.hole_segment, heap.hole_size)
    pools = pd.array([str(pool) for pool in view.device.pools], view.text)
    columns = {
        "address": heap.address,
        "size": heap.size,
        "active": live,
        "idle": heap.size - live,
        "largest_hole": largest,
        "live_blocks": np.bincount(heap.live_segment, minlength=len(heap.size)),
        "stream": heap.stream,
        "pool": _named(pools, heap.pool),
        "is_large": heap.is_large,
        "is_expandable": heap.is_expandable,
    }
    return _frame("segments", columns, len(heap.size))


def stacks(source: Source, device: int | None = None) -> pd.DataFrame:
    """Every frame of every stack, a row a frame.

    Args:
        source: What was read.
        device: As for `events`; all devices of a snapshot share its stacks.
    """
    table = _View(source, device).snapshot.stacks
    counts = np.diff(table.offsets)
    frames = table.frames
    ids = table.frame_ids.astype(np.int64)
    kinds = np.array([KINDS.index(frame_kind(frame)) for frame in frames], np.int8)
    text = pd.StringDtype("python")
    columns = {
        "stack": np.repeat(np.arange(len(counts), dtype=np.int32), counts),
        "depth": (np.arange(len(ids)) - np.repeat(table.offsets[:-1], counts)).astype(np.int32),
        "file": _named(pd.array([f.filename for f in frames], text), ids),
        "line": np.array([f.line for f in frames], np.int64)[ids] if len(frames) else np.zeros(0, np.int64),
        "function": _named(pd.array([f.name for f in frames], text), ids),
        "kind": kinds[ids] if len(frames) else np.zeros(0, np.int8),
    }
    return _frame("stacks", columns, len(ids))


def culprits(source: Source, device: int | None = None, at: str | None = None, by: str = "frame") -> pd.DataFrame:
    """Who holds the live bytes of one device at a moment, largest first; bytes sum to the active bytes.

    Args:
        source: What was read.
        device: As for `events`.
        at: As for `blocks`; None is the failure if there is one, else the peak.
        by: "frame", "stack" or "size".

    Raises:
        OomctlError: There is no such moment.
    """
    view = _View(source, device)
    found = holders.holdings(view.snapshot, view.device, at=at or view.moment, by=by)
    columns = {column.name: [getattr(row, column.name) for row in found.rows] for column in COLUMNS["culprits"]}
    return _frame("culprits", columns, len(found.rows))


def timeline(source: Source, device: int | None = None) -> pd.DataFrame:
    """Memory after each event of one device.

    Args:
        source: What was read.
        device: As for `events`.

    Raises:
        OomctlError: There is no trace.
    """
    view = _View(source, device)
    trace = view.need_trace()
    active, allocated, reserved = view.curves()
    columns = {
        "event": np.arange(len(trace)),
        "time_us": trace.time_us,
        "active": active,
        "allocated": allocated,
        "reserved": reserved,
        "idle": reserved - active,
    }
    return _frame("timeline", columns, len(trace))


def whatif(found: WhatIf) -> pd.DataFrame:
    """Replays under several settings, the best first.

    Args:
        found: What `oomctl.api.what_if` gave.
    """
    names = [column.name for column in COLUMNS["whatif"]]
    columns: dict[str, Any] = {name: [getattr(run, name) for run in found.runs] for name in names}
    columns["notes"] = ["; ".join(run.notes) for run in found.runs]
    return _frame("whatif", columns, len(found.runs))


class _View:
    """One device of a source, with what several tables need."""

    def __init__(self, source: Source, device: int | None) -> None:
        snapshots = source.snapshots if isinstance(source, Evidence) else (source,)
        self.snapshot, self.device = chosen_device(snapshots, device)
        self.conf: AllocConf = conf_from_recorded(self.snapshot.settings, self.snapshot.torch.high or (2, 11))
        self.lives: Lives = lives(self.device, self.conf.roundup_power2_divisions)
        self.text = pd.StringDtype("python")

    @property
    def moment(self) -> str:
        """The failure if there is one, else the peak."""
        trace = self.device.trace
        return "oom" if trace is not None and bool((trace.action == Action.OOM).any()) else "peak"

    def need_trace(self) -> Any:
        """The trace.

        Raises:
            OomctlError: There is none.
        """
        if self.device.trace is None:
            raise OomctlError(
                f"the snapshot has no events for GPU {self.device.index}, only the state at its end",
                "the tables blocks, segments, stacks and culprits need none",
            )
        return self.device.trace

    def curves(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """(active, allocated, reserved) bytes after each event."""
        active = active_curve(self.lives)
        return active, active - pending_curve(self.lives), reserved_curve(self.device)

    def heap(self, at: str) -> Any:
        """Segments, live blocks and holes at a moment."""
        event, _ = holders.event_at(self.device, self.lives, at)
        conf = self.conf
        return heap_at(self.device, self.lives, event, conf.max_split_size, conf.max_non_split_rounding)

    def names(self, used: NDArray[np.int32]) -> Any:
        """Labels of stacks, by stack; only those that are used are worked out."""
        found: list[str | None] = [None] * len(self.snapshot.stacks)
        for stack in np.unique(used[used >= 0]).tolist():
            frames = user_frames(self.snapshot.stacks[stack])
            found[stack] = label(frames[0]) if frames else None
        return pd.array(found, self.text)


def _named(values: Any, index: NDArray[Any]) -> Any:
    """Values by index; a negative index is missing."""
    return (
        values.take(np.asarray(index, np.int64), allow_fill=True)
        if len(values)
        else pd.array([None] * len(index), values.dtype)
    )


def _stack_numbers(stack: NDArray[np.int32]) -> Any:
    return pd.arrays.IntegerArray(stack.astype(np.int32), stack < 0)


def _frame(name: str, columns: Mapping[str, Any], rows: int) -> pd.DataFrame:
    """A table of the columns and types that `COLUMNS` promises."""
    return pd.DataFrame({c.name: _series(columns[c.name], c.dtype, rows) for c in COLUMNS[name]})


def _series(values: Any, dtype: str, rows: int) -> Any:
    categories = {"action": ACTIONS, "state": STATES, "kind": KINDS}.get(dtype)
    if categories is not None:
        return pd.Categorical.from_codes(values, categories=list(categories))
    kind = pd.StringDtype("python") if dtype == TEXT else dtype
    if values is None:
        return pd.array([pd.NA] * rows, kind)
    return pd.array(values, kind)
