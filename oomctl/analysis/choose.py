"""Which snapshot and device a question without a device is about."""

from __future__ import annotations

from collections.abc import Sequence

from oomctl.errors import OomctlError
from oomctl.model.snapshot import DeviceSnapshot, Snapshot


def chosen_device(snapshots: Sequence[Snapshot], device: int | None = None) -> tuple[Snapshot, DeviceSnapshot]:
    """A snapshot and the device asked for: else one that failed, else the longest trace, else the most reserved.

    Args:
        snapshots: Those of one incident.
        device: Device ordinal, or None.

    Raises:
        OomctlError: There is no snapshot, or none about this device.
    """
    found = [(s, d) for s in snapshots for d in s.devices if device in (None, d.index)]
    if not found:
        if snapshots:
            there = ", ".join(sorted({f"GPU {d.index}" for s in snapshots for d in s.devices})) or "none"
            raise OomctlError(
                "nothing about " + (f"GPU {device}" if device is not None else "any GPU"), f"there is: {there}"
            )
        raise OomctlError("a snapshot is needed: text does not say who holds what", "give the snapshot too")

    def weight(item: tuple[Snapshot, DeviceSnapshot]) -> tuple[bool, int, int]:
        trace = item[1].trace
        events = 0 if trace is None else len(trace)
        return (trace is not None and len(trace.device_free) > 0, events, int(item[1].segments.size.sum()))

    return max(found, key=weight)
