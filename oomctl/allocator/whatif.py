"""What would have happened under other settings: which to try, under which limit, and which did best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from oomctl.allocator.limits import Bracket, Limits
from oomctl.allocator.policy import UNLIMITED, policy_of
from oomctl.allocator.requests import Op, Requests
from oomctl.allocator.selftest import Recording, read_recording
from oomctl.allocator.trial import ESTIMATE, MIDDLE, Case, Job, Room
from oomctl.allocator.workers import in_parallel
from oomctl.model.alloc_conf import format_conf, parse_conf
from oomctl.model.common import Version
from oomctl.model.report import WhatIf, WhatIfRun
from oomctl.model.snapshot import Snapshot
from oomctl.progress import Progress, silent

SEARCH: Final = (
    "expandable_segments:True",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "max_split_size_mb:128,roundup_power2_divisions:8",
    "expandable_segments:True,roundup_power2_divisions:8",
)
"""Settings that are tried when none is named, besides the defaults and the recorded ones."""
SEARCH_SHORT: Final = ("expandable_segments:True", "max_split_size_mb:128")
"""What is tried where settings can hardly matter."""
SEARCH_WITH_FRACTION: Final = (
    "garbage_collection_threshold:0.8",
    "max_split_size_mb:64,garbage_collection_threshold:0.6",
)
"""These do nothing without set_per_process_memory_fraction."""
SEARCH_ASYNC: Final = "backend:cudaMallocAsync"
PRINTED: Final = (1 << 30) // 200
"""Bytes; half of the last digit in torch's messages, two decimals of a GiB."""


def what_if(
    snapshot: Snapshot,
    device_index: int,
    confs: Sequence[str] | None = None,
    *,
    torch: Version,
    limit: int | None = None,
    limit_low: int | None = None,
    limit_high: int | None = None,
    until: int | None = None,
    device_total: int | None = None,
    thorough: bool = True,
    fit: bool = False,
    processes: int = 1,
    ahead: Callable[[], Requests] | None = None,
    progress: Progress = silent,
) -> WhatIf:
    """Replays one device's trace under several settings.

    Args:
        snapshot: With a trace for the device.
        device_index: Device ordinal.
        confs: Settings strings, "" for the defaults; None tries a sensible set.
        torch: (major, minor) whose allocator is modelled.
        limit: Bytes that the allocator may reserve, as set_per_process_memory_fraction would cap it; None takes what
            the trace tells.
        limit_low: Bytes; the limit is at least this, for example from a message's rounded "allowed".
        limit_high: Bytes; the limit is at most this.
        until: Trace index of the fatal oom; None for the last one unless the program went on after it.
        device_total: Bytes of the card; a limit in any case.
        thorough: Where `confs` is None, try the whole set; else only the few that speak for all the others.
        fit: Also find the smallest limit at which all requests are served.
        processes: Worker processes.
        ahead: See `read_recording`.
        progress: Told what is being done and the share done.

    Returns:
        One run a setting, the best first.

    Raises:
        OomctlError: There is no such device, or it has no trace.
    """
    recording = read_recording(snapshot, device_index, torch, limit=limit, until=until, ahead=ahead)
    bounds, notes = _limit_of(recording, limit, limit_low, limit_high, device_total)
    texts = search_set(recording, torch, bounds.is_fraction, thorough) if confs is None else list(dict.fromkeys(confs))
    cases = [_case(text, torch, snapshot.backend) for text in texts]
    job = Job(recording, bounds, fit)
    runs = in_parallel(job, cases, processes, progress)
    known = bounds.low == bounds.high and bounds.low < UNLIMITED
    return WhatIf(
        identity=recording.identity,
        limit=bounds.low if known else None,
        limit_low=None if bounds.low >= UNLIMITED else bounds.low,
        limit_high=None if bounds.high >= UNLIMITED else bounds.high,
        recorded_conf=_recorded_text(snapshot, recording),
        runs=tuple(sorted(runs, key=_rank)),
        notes=(*notes, *_recording_notes(recording)),
    )


def replay_one(
    snapshot: Snapshot, device_index: int, conf: str, *, torch: Version, limit: int | None = None
) -> WhatIfRun:
    """Replays one device's trace under one setting; see `what_if`."""
    return what_if(snapshot, device_index, [conf], torch=torch, limit=limit).runs[0]


def search_set(recording: Recording, torch: Version, has_fraction: bool, thorough: bool = True) -> list[str]:
    """Settings worth trying: those that this torch knows, without those that are inert here."""
    recorded = format_conf(recording.conf)
    tried = (*SEARCH, *(SEARCH_WITH_FRACTION if has_fraction else ())) if thorough else SEARCH_SHORT
    texts = ["", recorded, *tried, SEARCH_ASYNC]
    return [text for text in dict.fromkeys(texts) if text in ("", recorded) or parse_conf(text, torch).accepted]


def _case(text: str, torch: Version, backend: str) -> Case:
    parsed = parse_conf(text, torch)
    refused = "" if parsed.accepted else "; ".join(i.message for i in parsed.issues if i.severity == "error")
    return Case(text, parsed.conf, policy_of(parsed.conf, torch, backend), refused)


def _recorded_text(snapshot: Snapshot, recording: Recording) -> str:
    text = "" if snapshot.settings is None else snapshot.settings.conf or ""
    return text or format_conf(recording.conf)


def _limit_of(
    recording: Recording, limit: int | None, low: int | None, high: int | None, device_total: int | None
) -> tuple[Room, list[str]]:
    """The limit to replay under, from what is given and what the trace tells."""
    capacity = UNLIMITED if device_total is None else device_total
    found = recording.bracket
    if limit is not None:
        value = _within(found, limit) if recording.until is not None else limit
        notes = []
        if recording.until is not None and found.steady and not found.low <= value < found.high:
            notes.append("the recorded run was under another limit than the one given")
        return Room(value, value, True, capacity), notes
    if found.high >= UNLIMITED:
        return Room(UNLIMITED, UNLIMITED, False, capacity), []
    is_fraction = found.kind != "device"
    if not found.steady:
        last = found.exact if found.exact is not None else found.high - 1
        before = Limits(fraction=found.low) if is_fraction else Limits(capacity=found.low)
        return Room(last, last, is_fraction, capacity, before), ["what stopped the allocator changed while it ran"]
    if found.exact is not None:
        value = min(max(found.exact, found.low), found.high - 1)
        return Room(value, value, is_fraction, capacity), []
    narrowed = (max(found.low, low or 0), min(found.high - 1, UNLIMITED if high is None else high))
    if narrowed[0] > narrowed[1]:
        return Room(found.low, found.high - 1, is_fraction, capacity), ["the limit given contradicts the trace"]
    return Room(*narrowed, is_fraction, capacity), []


def _within(found: Bracket, limit: int) -> int:
    """A limit that was rounded for printing, moved to where the trace says that it was."""
    if found.steady and found.low - PRINTED <= limit < found.high + PRINTED:
        return min(max(limit, found.low), found.high - 1)
    return limit


def _recording_notes(recording: Recording) -> list[str]:
    notes = []
    if recording.identity.reason:
        notes.append(f"the replay does not reproduce the recording: {recording.identity.reason}")
    if not recording.requests.complete:
        notes.append(MIDDLE)
    if recording.until is not None:
        earlier = int(np.count_nonzero(recording.requests.op == Op.OOM)) - 1
        if earlier > 0:
            notes.append(f"{earlier:,} other failed requests are in the trace, after which the program went on")
    return notes


def _rank(run: WhatIfRun) -> tuple[int, int, int, int]:
    """Best first: served, then open, then not served; the smaller peak; no estimate before a replay."""
    verdict = run.served if run.served is not None or run.oom is None else not run.oom
    order = {True: 0, None: 1, False: 2}[verdict]
    peak = UNLIMITED if run.peak_reserved is None else run.peak_reserved
    return (order, run.certainty == ESTIMATE, peak if order < 2 else -(run.failed_at or 0), len(run.alloc_conf))
