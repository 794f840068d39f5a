"""The formats; the ending of a file decides between them."""

from __future__ import annotations

from typing import Final

from oomctl.errors import OomctlError
from oomctl.exports.arrow import Feather, Parquet
from oomctl.exports.base import Format
from oomctl.exports.database import Sqlite
from oomctl.exports.flames import Folded, Speedscope
from oomctl.exports.perfetto import Perfetto
from oomctl.exports.pickled import Pickle
from oomctl.exports.reproducer import Reproducer
from oomctl.exports.rows import Csv, Json, JsonLines

FORMATS: Final[tuple[Format, ...]] = (
    Csv(),
    Json(),
    JsonLines(),
    Parquet(),
    Feather(),
    Sqlite(),
    Perfetto(),
    Folded(),
    Speedscope(),
    Pickle(),
    Reproducer(),
)


def format_of(path: str, name: str | None = None) -> Format:
    """The format of a name, else of a file's ending; the longest ending that fits decides.

    Raises:
        OomctlError: There is none.
    """
    if name is not None:
        for one in FORMATS:
            if one.name == name:
                return one
        raise OomctlError(f"no format {name!r}", "one of " + ", ".join(one.name for one in FORMATS))
    fits = [(len(end), one) for one in FORMATS for end in one.suffixes if path.lower().endswith(end)]
    if not fits:
        endings = ", ".join(one.suffixes[0] for one in FORMATS)
        raise OomctlError(f"cannot tell the format of {path!r} from its name", f"use a name that ends in {endings}")
    return max(fits, key=lambda item: item[0])[1]
