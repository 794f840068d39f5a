"""Whether two snapshots hold the same columns, named by what differs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from oomctl.errors import OomctlError
from oomctl.model.snapshot import DeviceSnapshot, Snapshot, Trace


def columns(snapshot: Snapshot) -> dict[str, object]:
    """Every column and value of a snapshot by name; stacks and pools as contents, not as numbers."""
    found: dict[str, object] = {"settings": snapshot.settings, "annotations": snapshot.annotations}
    for device in snapshot.devices:
        for part in ("segments", "blocks", "trace"):
            value = getattr(device, part)
            if value is not None:
                found |= {f"{device.index}.{part}.{k}": v for k, v in _part(value, device, snapshot).items()}
    return found


def _part(value: object, device: DeviceSnapshot, snapshot: Snapshot) -> dict[str, object]:
    found: dict[str, object] = {}
    for field in dataclasses.fields(value):
        column = getattr(value, field.name)
        if column is None or not field.compare:
            continue
        if field.name == "stack":
            column = [snapshot.stacks[i] for i in column.tolist()]
        elif field.name == "pool":
            column = [device.pools[i] if i >= 0 else None for i in column.tolist()]
        elif field.name in ("context", "metadata"):
            assert isinstance(value, Trace)
            column = [value.texts[i] if i >= 0 else None for i in column.tolist()]
        elif isinstance(column, np.ndarray):
            column = (str(column.dtype), column.tolist())
        found[field.name] = column
    return found


def differing(left: Snapshot, right: Snapshot, but: tuple[str, ...] = ()) -> list[str]:
    """Names of columns that both have and that differ, those in `but` left out."""
    a, b = columns(left), columns(right)
    return [k for k in a.keys() & b.keys() if a[k] != b[k] and not k.endswith(but or ("\0",))]


def result(read: Callable[[], object]) -> object:
    """What it returns, or the line of its refusal; anything else that it raises is a bug."""
    try:
        return read()
    except OomctlError as error:
        return error.message
