"""The tables of a job, made in pieces, and as plain text and numbers for formats without pandas' types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pandas as pd

from oomctl import tables
from oomctl.errors import OomctlError
from oomctl.exports.base import Job

NAMES: Final = tuple(tables.COLUMNS)


def table_of(job: Job) -> str:
    """The table to write: the one asked for, else the events, or the blocks where there are none.

    Raises:
        OomctlError: There is no such table.
    """
    if not job.table:
        return "events" if job.chosen()[1].trace is not None else "blocks"
    if job.table not in NAMES:
        raise OomctlError(f"no table {job.table!r}", "one of " + ", ".join(NAMES))
    return job.table


def pieces(job: Job, table: str) -> Iterator[pd.DataFrame]:
    """A table in pieces, at least one.

    Raises:
        OomctlError: The input lacks what the table shows.
    """
    source, device, at = job.evidence, job.device, job.at
    if table == "events":
        yield from tables.event_chunks(source, device)
    elif table == "blocks":
        yield tables.blocks(source, device, at or "end")
    elif table == "segments":
        yield tables.segments(source, device, at or "end")
    elif table == "stacks":
        yield tables.stacks(source, device)
    elif table == "culprits":
        yield tables.culprits(source, device, at)
    elif table == "timeline":
        yield tables.timeline(source, device)
    elif job.whatif is not None:
        yield tables.whatif(job.whatif())


def plain(frame: pd.DataFrame, table: str) -> pd.DataFrame:
    """A copy with addresses and handles as hexadecimal text: programs that count in floats would round them."""
    shown = frame.copy(deep=False)
    for column in tables.COLUMNS[table]:
        if column.unit in ("address", "handle"):
            shown[column.name] = [hex(value) for value in frame[column.name].tolist()]
    return shown
