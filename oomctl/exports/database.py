"""All tables as one SQLite database, to be asked in SQL."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

import pandas as pd

from oomctl import tables
from oomctl.exports.base import Job
from oomctl.exports.frames import pieces, plain

INDEXES: Final = (
    "CREATE INDEX events_by_stack ON events (stack)",
    "CREATE INDEX events_by_address ON events (address)",
    "CREATE INDEX stacks_by_number ON stacks (stack, depth)",
)
TYPES: Final = {"int64": "INTEGER", "int32": "INTEGER", "Int64": "INTEGER", "Int32": "INTEGER", "float64": "REAL"}
FLAGS: Final = ("bool", "boolean")


class Sqlite:
    """A database with the tables events, blocks, segments, stacks, culprits and one that explains the columns."""

    name = "sqlite"
    suffixes = (".sqlite", ".sqlite3", ".db")
    what = "All tables as one SQLite database, with a table that explains the columns."

    def write(self, job: Job, path: str) -> tuple[str, ...]:
        """Writes table by table, the events piece by piece."""
        has_trace = job.chosen()[1].trace is not None
        wanted = ["blocks", "segments", "stacks", "culprits"]
        with_whatif = job.table == "whatif"
        wanted += ["events"] if has_trace else []
        wanted += ["whatif"] if with_whatif else []
        connection = sqlite3.connect(path)
        try:
            connection.execute("PRAGMA journal_mode = OFF")  # the file is new, and thrown away if this fails
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute('CREATE TABLE columns ("table" TEXT, name TEXT, unit TEXT, description TEXT)')
            for table in wanted:
                self._table(connection, job, table)
            for index in INDEXES[0 if has_trace else 2 :]:
                connection.execute(index)
            connection.commit()
        except sqlite3.OperationalError as error:  # the disk is full, or gone
            raise OSError(5, str(error)) from error
        finally:
            connection.close()
        return ()

    @staticmethod
    def _table(connection: sqlite3.Connection, job: Job, table: str) -> None:
        columns = tables.COLUMNS[table]
        typed = ", ".join(f'"{c.name}" {_type_of(c)}' for c in columns)
        connection.execute(f'CREATE TABLE "{table}" ({typed})')
        marks = ", ".join("?" * len(columns))
        for piece in pieces(job, table):
            rows = zip(*(_values(series) for _, series in plain(piece, table).items()), strict=True)
            connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', rows)
        explained = [(table, c.name, c.unit, c.text) for c in columns]
        connection.executemany("INSERT INTO columns VALUES (?, ?, ?, ?)", explained)


def _type_of(column: tables.Column) -> str:
    return "INTEGER" if column.dtype in FLAGS else TYPES.get(column.dtype, "TEXT")


def _values(series: pd.Series) -> list[Any]:
    """Values as SQLite takes them; text that is no Unicode is shown escaped."""
    missing = series.isna().tolist()
    values = series.tolist()
    return [
        None
        if gone
        else value.encode("utf-8", "backslashreplace").decode()
        if isinstance(value, str)
        else int(value)
        if isinstance(value, bool)
        else value
        for value, gone in zip(values, missing, strict=True)
    ]
