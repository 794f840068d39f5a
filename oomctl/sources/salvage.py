"""What can be read of a pickle that breaks off, from the objects that its decoder had made by then."""

from __future__ import annotations

from typing import Any

from oomctl.errors import OomctlError
from oomctl.model.common import Skipped
from oomctl.model.snapshot import REST_OF_FILE, Snapshot
from oomctl.sources.snapshot_objects import snapshot_from_objects


def salvaged(memo: dict[int, Any], end: int, reason: str, size: int) -> Snapshot:
    """Rebuilds a snapshot from a decoder's memo: picklers memoise every container when it begins.

    A container is empty there until its end was read, so whatever has its keys is whole.

    Args:
        memo: Index -> object, in the order in which they began.
        end: Offset behind the last opcode that is whole and allowed.
        reason: Why it ends there, of `pickle_scan.Walk`; "" where its structure is broken somewhere.
        size: Bytes of the file.

    Raises:
        OomctlError: Not even a segment was whole.
    """
    made = [memo[i] for i in sorted(memo)]
    segments = [o for o in made if type(o) is dict and "total_size" in o and "blocks" in o]
    where = {
        "": "its structure is broken",
        "truncated": f"it breaks off at byte {end:,}; {size:,} bytes are there",
    }.get(reason, f"what stands at byte {end:,} of {size:,} is damaged")
    if not segments:
        raise OomctlError(
            f"damaged: {where}, before the first whole segment of a memory snapshot",
            "copy the file again; was the dump cut short, or the disk full?",
        )
    data: dict[str, Any] = {"segments": segments}
    cut = "segments"
    if "device_traces" in made:
        traces, complete = _traces(made[made.index("device_traces") + 1 :])
        data["device_traces"] = traces
        cut = "later" if complete else "traces"
    events = sum(map(len, data.get("device_traces", ())))
    count = f"{len(segments):,} segments" + (f" and {events:,} events" if events else "")
    lost = {
        "segments": "further segments, all events and the settings are lost",
        "traces": "the last events and the settings are lost, so the moment of failure cannot be rebuilt from events",
        "later": "settings or annotations are lost",
    }[cut]
    snapshot = snapshot_from_objects(data, cut=cut, size=size)
    note = Skipped(REST_OF_FILE, f"{where}: {count} were read, {lost}", "copy the file again, or dump again")
    return _with(snapshot, note)


def _with(snapshot: Snapshot, note: Skipped) -> Snapshot:
    from dataclasses import replace

    return replace(snapshot, skipped=(note, *snapshot.skipped))


def _traces(made: list[Any]) -> tuple[list[list[Any]], bool]:
    """Events by device from the objects after the key `device_traces`, and whether the key after them was read.

    Lists begin in this order: the outer one, a trace, then each event's own (frames) before the next event.
    """
    traces: list[list[Any]] = []
    own: set[int] = set()
    outer = False
    for item in made:
        if item in ("allocator_settings", "external_annotations") and type(item) is str:
            return traces, True
        if type(item) is dict and "action" in item and traces:
            traces[-1].append(item)
            own = {id(value) for value in item.values()}
        elif type(item) is list:
            if not outer:
                outer = True
            elif id(item) not in own:
                traces.append([])
    return traces, False
