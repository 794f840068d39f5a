"""The JSON Schema of `oomctl.report/1`, derived from the model so that it cannot fall behind it."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Mapping
from typing import Any, Final

from oomctl.model.common import VersionRange
from oomctl.model.report import CLASSES, CONFIDENCES, Report
from oomctl.report.json import HEXADECIMAL, PAIRS, RENAMED, SCHEMA, SPARSE, defaults, hints, is_record, optional

_ENUMS: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("Verdict", "cls"): CLASSES,
    ("Verdict", "confidence"): CONFIDENCES,
    ("Contribution", "cls"): CLASSES,
    ("Remedy", "kind"): ("alloc_conf", "code", "operations"),
    ("Remedy", "applicability"): ("safe", "has_cost", "edit_code"),
    ("Culprit", "role"): ("leaked", "peak", "requested", "pinning", "held"),
}
_SCALARS: Final = {int: "integer", float: "number", str: "string", bool: "boolean"}
_HEX: Final = {"type": "string", "pattern": "^0x[0-9a-f]+$"}
_ATTRIBUTE: Final = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of what `to_json` gives; the text that `oomctl schema` prints."""
    # The embedded reports of other devices carry no schema key of their own.
    return schema_of(Report, SCHEMA, "What oomctl concluded.")


def schema_of(cls: type, name: str, description: str) -> dict[str, Any]:
    """JSON Schema of a record of the model as `oomctl.report.json.encode` writes it, under a schema key.

    Args:
        cls: Its type.
        name: Value of the schema key, such as "oomctl.diff/1".
        description: One sentence.
    """
    defs: dict[str, Any] = {}
    _record(cls, defs)
    top = defs[cls.__name__]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:{name.replace('/', ':')}",
        "title": name,
        "description": f"{description} Sizes are bytes; unknown values are null or absent, never 0.",
        "type": "object",
        "properties": {"schema": {"const": name}, **top["properties"]},
        "required": ["schema", *top["required"]],
        "$defs": defs,
    }


def _record(cls: type, defs: dict[str, Any]) -> None:
    if cls.__name__ in defs:
        return
    entry: dict[str, Any] = {"type": "object"}
    defs[cls.__name__] = entry
    document = inspect.getdoc(cls) or ""
    entry["description"] = document.split("\n\n")[0].replace("\n", " ")
    remarks = {name: re.sub(r"\s+", " ", text).strip() for name, text in _ATTRIBUTE.findall(document)}
    properties, required = {}, []
    always = SPARSE.get(cls)
    for name, hint in hints(cls).items():
        key = RENAMED.get((cls, name), name)
        properties[key] = _field(cls, name, hint, defs)
        if name in remarks and "$ref" not in properties[key]:
            properties[key]["description"] = remarks[name]
        if always is None or name in always or name not in defaults(cls):
            required.append(key)
    entry["properties"] = properties
    entry["required"] = required


def _field(cls: type, name: str, hint: Any, defs: dict[str, Any]) -> dict[str, Any]:
    inner, may_be_none = optional(hint)
    where = (cls.__name__, name)
    if inner is VersionRange:
        return {"type": ["string", "null"]}
    if (cls, name) in HEXADECIMAL:
        found: dict[str, Any] = dict(_HEX)
    elif where in PAIRS:
        found = {"type": "object", "additionalProperties": {"type": ["number", "null"]}}
    elif where in _ENUMS:
        found = {"enum": list(_ENUMS[where])}
    else:
        found = _type(inner, defs)
    return _or_null(found) if may_be_none else found


def _or_null(found: dict[str, Any]) -> dict[str, Any]:
    if isinstance(found.get("type"), str):
        return {**found, "type": [found["type"], "null"]}
    return {"anyOf": [found, {"type": "null"}]}


def _type(hint: Any, defs: dict[str, Any]) -> dict[str, Any]:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if is_record(hint):
        _record(hint, defs)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if origin is tuple and args[-1] is Ellipsis:
        return {"type": "array", "items": _item(args[0], defs)}
    if origin is tuple:
        items = [_item(arg, defs) for arg in args]
        return {"type": "array", "prefixItems": items, "minItems": len(args), "maxItems": len(args)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _item(args[1], defs)}
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_item(arg, defs) for arg in args]}
    return {}


def _item(hint: Any, defs: dict[str, Any]) -> dict[str, Any]:
    inner, may_be_none = optional(hint)
    found = {"type": "string"} if inner is VersionRange else _type(inner, defs)
    return _or_null(found) if may_be_none else found
