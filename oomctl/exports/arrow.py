"""Tables as Arrow knows them: Parquet and Feather, every type as it is."""

from __future__ import annotations

from typing import Any

from oomctl import tables
from oomctl.exports.base import Job, extra
from oomctl.exports.frames import pieces, table_of


class Parquet:
    """A column store; what is read back with pandas is the table that was written."""

    name = "parquet"
    suffixes = (".parquet", ".pq")
    what = "A table for pandas, Polars, DuckDB and Spark; lossless. Needs oomctl[arrow]."

    def write(self, job: Job, path: str) -> tuple[str, ...]:
        """Writes a row group a piece."""
        try:
            from pyarrow import parquet
        except ImportError:
            raise extra("pyarrow", "arrow") from None
        return _write(job, lambda schema: parquet.ParquetWriter(path, schema, compression="snappy"))


class Feather:
    """Arrow's own file format, readable without copying."""

    name = "feather"
    suffixes = (".feather", ".arrow")
    what = "A table as an Arrow file; lossless. Needs oomctl[arrow]."

    def write(self, job: Job, path: str) -> tuple[str, ...]:
        """Writes a record batch a piece."""
        try:
            from pyarrow import ipc
        except ImportError:
            raise extra("pyarrow", "arrow") from None
        return _write(job, lambda schema: ipc.new_file(path, schema))


def _write(job: Job, writer_for: Any) -> tuple[str, ...]:
    import pyarrow

    table = table_of(job)
    units = {column.name: {"unit": column.unit, "description": column.text} for column in tables.COLUMNS[table]}
    writer: Any = None
    schema: Any = None
    try:
        for piece in pieces(job, table):
            rows = pyarrow.Table.from_pandas(piece, preserve_index=False)
            if schema is None:
                fields = [field.with_metadata(units[field.name]) for field in rows.schema]
                schema = pyarrow.schema(fields, metadata=rows.schema.metadata)
                writer = writer_for(schema)
            writer.write_table(rows.cast(schema))
    finally:
        if writer is not None:
            writer.close()
    return ()
