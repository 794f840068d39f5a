"""Tables as text: CSV, JSON, JSON lines."""

from __future__ import annotations

import json
from typing import Final

import pandas as pd

from oomctl import tables
from oomctl.exports.base import Job
from oomctl.exports.frames import pieces, plain, table_of

SCHEMA: Final = "oomctl.table/1"
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n")
"""What a spreadsheet takes for the beginning of a formula; file and function names may begin with any of them."""


class Csv:
    """Comma-separated values with one line of names; missing is empty."""

    name = "csv"
    suffixes = (".csv",)
    what = "A table for spreadsheets and scripts; text that looks like a formula is quoted with an apostrophe."

    def write(self, job: Job, path: str) -> tuple[str, ...]:
        """Writes piece by piece."""
        table = table_of(job)
        texts = [column.name for column in tables.COLUMNS[table] if column.dtype == tables.TEXT]
        with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
            for number, piece in enumerate(pieces(job, table)):
                shown = plain(piece, table)
                for name in texts:
                    shown[name] = _harmless(shown[name])
                shown.to_csv(stream, index=False, header=number == 0, lineterminator="\n")
        return ()


class Json:
    """One object with the columns explained and the rows as objects."""

    name = "json"
    suffixes = (".json",)
    what = "A table as one JSON object: schema, columns with their units, rows."

    def write(self, job: Job, path: str) -> tuple[str, ...]:
        """Writes piece by piece."""
        table = table_of(job)
        with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
            columns = [
                {"name": column.name, "unit": column.unit, "description": column.text}
                for column in tables.COLUMNS[table]
            ]
            head = json.dumps({"schema": SCHEMA, "table": table, "columns": columns}, ensure_ascii=False)
            stream.write(head[:-1] + ', "rows": [')
            first = True
            for piece in pieces(job, table):
                lines = _lines(piece, table)
                if lines:
                    stream.write(("\n" if first else ",\n") + ",\n".join(lines))
                    first = False
            stream.write("\n]}\n")
        return ()


class JsonLines:
    """An object a line."""

    name = "jsonl"
    suffixes = (".jsonl", ".ndjson")
    what = "A table as one JSON object a line."

    def write(self, job: Job, path: str) -> tuple[str, ...]:
        """Writes piece by piece."""
        table = table_of(job)
        with open(path, "w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
            for piece in pieces(job, table):
                stream.writelines(line + "\n" for line in _lines(piece, table))
        return ()


def _lines(piece: pd.DataFrame, table: str) -> list[str]:
    text: str = plain(piece, table).to_json(orient="records", lines=True, force_ascii=True)
    return text.splitlines()


def _harmless(column: pd.Series) -> pd.Series:
    risky = column.str.startswith(FORMULA).fillna(False).astype(bool)
    return column.where(~risky, "'" + column)
