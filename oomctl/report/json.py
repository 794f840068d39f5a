"""The JSON that oomctl prints and reads back (schema `oomctl.report/1`).

The codec walks the model's own types, so a field added there is a key here. What differs from the model stands in the
few tables below: renamed keys, addresses as hexadecimal text, ranges of torch as text.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any, Final, TypeVar

from oomctl.errors import OomctlError
from oomctl.model.common import Skipped, VersionRange
from oomctl.model.log import OomEvent, Series
from oomctl.model.ranks import RankRow
from oomctl.model.report import (
    Contribution,
    HoleBucket,
    Holes,
    Piece,
    Report,
    Request,
    SegmentBar,
    SegmentMap,
    StackLine,
    StepRow,
    Timeline,
    Verdict,
    WhatIfRun,
)
from oomctl.model.stacks import Frame
from oomctl.report.base import Options
from oomctl.report.redact import redact

SCHEMA: Final = "oomctl.report/1"
EMBEDDED_ID: Final = "oomctl-report"
"""The id of the script element that carries the report inside an HTML page."""

RENAMED: Final[dict[tuple[type, str], str]] = {
    (Verdict, "cls"): "class",
    (Contribution, "cls"): "class",
    (RankRow, "cls"): "class",
    (Frame, "filename"): "file",
    (Frame, "name"): "function",
}
HEXADECIMAL: Final = frozenset({(SegmentBar, "address"), (SegmentBar, "stream"), (Request, "stream")})
"""Fields that are raw pointers: JSON numbers lose digits above 2^53."""

SPARSE: Final[dict[type, frozenset[str]]] = {
    OomEvent: frozenset({"backend", "recovered"}),
    Piece: frozenset({"size", "state"}),
    StackLine: frozenset({"file", "line", "function", "kind"}),
    WhatIfRun: frozenset({"alloc_conf", "peak_reserved", "peak_allocated", "served", "oom"}),
    Skipped: frozenset({"what", "reason", "capture"}),
    RankRow: frozenset({"name", "rank", "role", "cls", "peak"}),
}
"""Types that come in great numbers or have many optional fields: defaults are left out, except for these fields."""

PAIRS: Final = frozenset({("EvidenceItem", "numbers")})
"""Fields of (name, value) pairs that become one object."""

MOST: Final = 2**256
"""Largest number that is read back, of either sign: above any that a log's digits make, and far below a float's end."""

PARALLEL: Final[dict[type, tuple[str, ...]]] = {
    Timeline: ("event", "time_us", "active", "reserved", "bands.values"),
    WhatIfRun: ("curve_event", "curve_reserved"),
    Series: ("steps", "values"),
}
"""Columns of one length, where they are there; "bands.values" is that column of each of the bands."""

RISING: Final = frozenset({(Timeline, "event"), (WhatIfRun, "curve_event")})
"""Columns whose values never fall."""

SIZED: Final = frozenset({SegmentMap, SegmentBar, Piece, Holes, HoleBucket, StepRow, WhatIfRun})
"""Types drawn to scale whose numbers are bytes, counts and positions: none is below 0. A timeline's may be, where a
trace frees more than it reserved."""

_MAX_DEPTH: Final = 64
_HEX: Final = re.compile("-?0x[0-9a-f]{1,16}")
_RANGE: Final = re.compile(r"(>=|<=)?(\d{1,4})\.(\d{1,4})(?:-(\d{1,4})\.(\d{1,4}))?")
_EMBEDDED: Final = re.compile(
    rf"<script\b[^>]*\bid=[\"']?{EMBEDDED_ID}[\"']?[^>]*>(.*?)</script>", re.IGNORECASE | re.DOTALL
)
_T = TypeVar("_T")
_NOWHERE: Final = (tuple, "")


def to_json(report: Report) -> dict[str, Any]:
    """The report as plain values: sizes are ints in bytes, unknown ones null or absent, addresses hexadecimal text.

    Args:
        report: What was concluded.

    Returns:
        An object of schema `oomctl.report/1`; the same report gives equal objects with equal order of keys.
    """
    return {"schema": SCHEMA, **_encode(report, Report, None)}


def encode(value: Any) -> dict[str, Any]:
    """Any record of the model as plain values, under the same rules as a report and without a schema key."""
    encoded: dict[str, Any] = _encode(value, type(value), None)
    return encoded


def dumps(report: Report) -> str:
    """`to_json` as text: indented, rows of numbers on one line, ASCII only, the same bytes for the same report."""
    return pretty(to_json(report)) + "\n"


def compact(report: Report) -> str:
    """`to_json` as one line of ASCII text, for embedding."""
    return json.dumps(to_json(report), separators=(",", ":"), allow_nan=False)


def from_json(data: Mapping[str, Any]) -> Report:
    """The inverse of `to_json`; keys that this version does not know are ignored.

    Args:
        data: A decoded object.

    Raises:
        OomctlError: The object is no such report.
    """
    schema = data.get("schema") if isinstance(data, Mapping) else None
    if schema != SCHEMA:
        raise OomctlError(
            f"this is no oomctl report: its schema is {str(schema)[:60]!r}, expected {SCHEMA!r}",
            "reports of this kind come from `oomctl diagnose --json` or `--html`",
        )
    return _decode_object(data, Report, "report", 0)


def from_text(text: str) -> Report:
    """Reads a report back from what oomctl wrote: JSON text, or an HTML page with the JSON inside.

    Raises:
        OomctlError: The text holds no report.
    """
    found = _EMBEDDED.search(text)
    try:
        data = json.loads(found[1] if found else text)
    except (ValueError, RecursionError) as error:
        raise OomctlError(
            "this is no oomctl report: its JSON cannot be read", "write it again with `oomctl diagnose -o report.html`"
        ) from error
    if not isinstance(data, dict):
        raise OomctlError("this is no oomctl report: its JSON is not an object")
    return from_json(data)


def pretty(value: Any, indent: int = 0) -> str:
    """JSON text for people: one key a line, lists of plain values on one line."""
    if isinstance(value, dict) and value:
        pad = " " * (indent + 2)
        lines = (f"{pad}{json.dumps(key)}: {pretty(item, indent + 2)}" for key, item in value.items())
        return "{\n" + ",\n".join(lines) + "\n" + " " * indent + "}"
    if isinstance(value, list) and any(isinstance(item, dict | list) for item in value):
        pad = " " * (indent + 2)
        return "[\n" + ",\n".join(pad + pretty(item, indent + 2) for item in value) + "\n" + " " * indent + "]"
    return json.dumps(value, allow_nan=False)


@cache
def hints(cls: type) -> dict[str, Any]:
    """Resolved type of each field of a model type, in order."""
    resolved = typing.get_type_hints(cls)
    return {name: resolved[name] for name in field_names(cls)}


def field_names(cls: type) -> tuple[str, ...]:
    """Fields of a dataclass or named tuple, in order."""
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
    return names


def is_record(hint: Any) -> bool:
    """Whether a type is encoded as an object with fixed keys."""
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or hasattr(hint, "_fields"))


@cache
def defaults(cls: type) -> dict[str, Any]:
    """Default of each field that has one (the model's defaults are plain or frozen values)."""
    if dataclasses.is_dataclass(cls):
        return {f.name: f.default for f in dataclasses.fields(cls) if f.default is not dataclasses.MISSING}
    found: dict[str, Any] = cls._field_defaults  # type: ignore[attr-defined]
    return found


def optional(hint: Any) -> tuple[Any, bool]:
    """A type without its None, and whether it had one."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        rest = [part for part in typing.get_args(hint) if part is not type(None)]
        if len(rest) < len(typing.get_args(hint)):
            return (rest[0] if len(rest) == 1 else typing.Union[tuple(rest)]), True  # noqa: UP007
    return hint, False


def _encode(value: Any, hint: Any, where: tuple[type, str] | None) -> Any:
    if value is None:
        return None
    if isinstance(value, VersionRange):
        return str(value) if value.known else None
    hint, _ = optional(hint)
    if is_record(hint):
        always = SPARSE.get(hint)
        known = defaults(hint)
        encoded = {}
        for name, inner in hints(hint).items():
            item = getattr(value, name)
            if always is not None and name not in always and name in known and item == known[name]:
                continue
            encoded[RENAMED.get((hint, name), name)] = _encode(item, inner, (hint, name))
        return encoded
    if where in HEXADECIMAL:
        return hex(value)
    if where is not None and (where[0].__name__, where[1]) in PAIRS:
        return {name: _plain(number) for name, number in value}
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        inners = [args[0]] * len(value) if args[-1] is Ellipsis else args
        return [_encode(item, inner, None) for item, inner in zip(value, inners, strict=True)]
    if isinstance(value, Mapping):
        return {str(key): _encode(item, args[1], None) for key, item in value.items()}
    return _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, bool | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return int(value)


def _decode_object(data: Any, cls: Callable[..., _T], path: str, depth: int) -> _T:
    if not isinstance(data, Mapping) or depth > _MAX_DEPTH:
        raise OomctlError(f"the report is damaged: {path} should be an object")
    values: dict[str, Any] = {}
    assert isinstance(cls, type)
    for name, hint in hints(cls).items():
        key = RENAMED.get((cls, name), name)
        if key in data:
            values[name] = _decode(data[key], hint, (cls, name), f"{path}.{key}", depth + 1)
        elif name not in defaults(cls):
            inner, may_be_none = optional(hint)
            if not may_be_none and inner is not VersionRange:
                raise OomctlError(f"the report is damaged: {path}.{key} is missing")
            values[name] = None if may_be_none else VersionRange()
    made: _T = cls(**values)
    _check_columns(made, cls, path)
    return made


def _check_columns(made: Any, cls: type, path: str) -> None:
    """Refuses columns of unequal length, and those that fall where they may not."""
    columns: list[tuple[str, Any]] = []
    for name in PARALLEL.get(cls, ()):
        field, _, inner = name.partition(".")
        value = getattr(made, field)
        if inner:
            columns += [(f"{field}[{i}].{inner}", getattr(one, inner)) for i, one in enumerate(value)]
        elif value is not None:
            columns.append((field, value))
    for name, column in columns:
        if len(column) != len(columns[0][1]):
            raise OomctlError(
                f"the report is damaged: {path}.{name} should have as many values as {columns[0][0]}, "
                f"{len(columns[0][1]):,}, found {len(column):,}"
            )
        if (cls, name) in RISING and any(after < before for before, after in pairwise(column)):
            raise OomctlError(f"the report is damaged: {path}.{name} should never fall")


def _decode(data: Any, hint: Any, where: tuple[type, str], path: str, depth: int) -> Any:
    inner, may_be_none = optional(hint)
    if inner is VersionRange:
        return parse_range(data, path)
    if data is None and may_be_none:
        return None
    if is_record(inner):
        return _decode_object(data, inner, path, depth)
    if where in HEXADECIMAL:
        return _decode_hex(data, path)
    if (where[0].__name__, where[1]) in PAIRS:
        if not isinstance(data, Mapping):
            raise OomctlError(f"the report is damaged: {path} should be an object")
        return tuple((str(key), _decode_plain(item, int | float, path, -MOST)) for key, item in data.items())
    origin, args = typing.get_origin(inner), typing.get_args(inner)
    if origin is tuple:
        if not isinstance(data, list | tuple) or (args[-1] is not Ellipsis and len(args) != len(data)):
            raise OomctlError(f"the report is damaged: {path} should be a list")
        inners = [args[0]] * len(data) if args[-1] is Ellipsis else args
        within = (where[0], "")
        return tuple(
            _decode(item, part, within, f"{path}[{i}]", depth + 1)
            for i, (item, part) in enumerate(zip(data, inners, strict=True))
        )
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(data, Mapping):
            raise OomctlError(f"the report is damaged: {path} should be an object")
        return {str(k): _decode(v, args[1], _NOWHERE, f"{path}.{k}", depth + 1) for k, v in data.items()}
    return _decode_plain(data, inner, path, 0 if where[0] in SIZED else -MOST)


def _decode_plain(data: Any, hint: Any, path: str, least: int) -> Any:
    if isinstance(data, int | float) and not isinstance(data, bool) and not least <= data <= MOST:  # so is no NaN
        raise OomctlError(
            f"the report is damaged: {path} should be a number from {'0' if least == 0 else '-2^256'} to 2^256"
        )
    if hint is float and isinstance(data, int | float) and not isinstance(data, bool):
        return float(data)
    wanted = typing.get_args(hint) or (hint,)
    if isinstance(data, wanted) and (bool in wanted or not isinstance(data, bool)):
        return data
    names = " or ".join(part.__name__ for part in wanted)
    raise OomctlError(f"the report is damaged: {path} should be {names}, found {type(data).__name__}")


def _decode_hex(data: Any, path: str) -> int:
    found = _HEX.fullmatch(data) if isinstance(data, str) else None
    if found is None:
        raise OomctlError(f"the report is damaged: {path} should be hexadecimal text of at most 16 digits")
    return int(found[0], 16)


def parse_range(data: Any, path: str = "torch") -> VersionRange:
    """Reads what `str(VersionRange)` wrote: "2.1-2.3", "2.11", ">=2.1", "<=1.13"; None is unknown."""
    if data is None:
        return VersionRange()
    found = _RANGE.fullmatch(data) if isinstance(data, str) else None
    if found is None or (found[1] and found[4]):
        raise OomctlError(f"the report is damaged: {path} should be a range of versions such as '2.1-2.3'")
    low = (int(found[2]), int(found[3]))
    if found[1]:
        return VersionRange(low, None) if found[1] == ">=" else VersionRange(None, low)
    return VersionRange(low, (int(found[4]), int(found[5])) if found[4] else low)


class JsonRenderer:
    """The contract for other programs."""

    name = "json"
    suffixes: tuple[str, ...] = (".json",)
    redacts = "none"

    def render(self, report: Report, options: Options) -> str:
        """See `dumps`."""
        return dumps(redact(report, options.redact or self.redacts))
