"""Reports that can be passed on: homes, users, hosts and absolute prefixes shortened, or every name hashed."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeVar

from oomctl.model.report import Report, StackLine
from oomctl.model.stacks import Frame

MODES: Final = ("paths", "all", "none")
DESCRIPTIONS: Final = {
    "paths": "homes, users, hosts and absolute prefixes shortened",
    "all": "every name of a file, function or input hashed",
    "none": "as recorded",
}

_HOME: Final = re.compile(r"(?:/home|/Users|/users|[A-Za-z]:\\Users)[/\\]([^/\\\s:\"'<>]+)|/root(?=/|$)")
_ABSOLUTE: Final = re.compile(r"(?<![\w:/.~…-])(?:/|[A-Za-z]:\\)(?:[^\s\"'<>|:;,()/\\]+[/\\])+[^\s\"'<>|:;,()/\\]*")
_LIBRARY: Final = re.compile(r"^.*?((?:site|dist)-packages[/\\].*)$")
_AT_HOST: Final = re.compile(r"\b[\w.-]+@(?=[\w.-]*[\w-])(?!\d+x?\b)[A-Za-z][\w.-]*\b")
_ADDRESS: Final = re.compile(r"\b(?!127\.0\.0\.1\b)\d{1,3}(?:\.\d{1,3}){3}\b")
_HOST: Final = re.compile(
    r"\b(?=[\w.]*[\d-])[A-Za-z][\w-]*(?:\.[\w-]+)*\.(?:local|internal|lan|corp|cluster|intranet|edu)\b"
)
_COMMON: Final = frozenset(
    {"user", "users", "home", "work", "data", "root", "src", "torch", "python", "model", "train"}
)
_KEPT: Final = frozenset(
    {
        "applicability",
        "backend",
        "category",
        "certainty",
        "cls",
        "code",
        "confidence",
        "fingerprint",
        "format",
        "kind",
        "limit_kind",
        "meaning",
        "oomctl_version",
        "pool",
        "role",
        "sha256",
        "slug",
        "state",
        "subtype",
        "unit_style",
    }
)
"""Fields that hold slugs of oomctl's own."""
_PATHS: Final = frozenset({"file", "path"})
_PARTS: Final = 3
_T = TypeVar("_T")


def redact(report: Report, mode: str = "paths") -> Report:
    """A copy of a report without what should not be passed on.

    Args:
        report: What was concluded.
        mode: "paths" shortens homes, users, hosts and absolute prefixes; "all" hashes every name as well (the same name
            gives the same hash in every report); "none" changes nothing.
    """
    return _redacted(report, mode, _hash_names)


def redact_record(value: _T, mode: str = "paths") -> _T:
    """`redact` for any other record of the model.

    Args:
        value: A comparison, a job.
        mode: As for `redact`.
    """

    def hashed(record: _T) -> _T:
        text, path = _hashers(record, [])
        return _walk(record, text, path)

    return _redacted(value, mode, hashed)


def _redacted(value: _T, mode: str, hashed: Callable[[_T], _T]) -> _T:
    if mode == "none":
        return value
    if mode not in MODES:
        raise ValueError(f"no redaction {mode!r}")
    users = _users(value)
    named = "|".join(re.escape(user) for user in sorted(users, key=len, reverse=True))
    known = re.compile(rf"\b(?:{named})\b") if users else None
    if mode == "all":
        value = hashed(value)
    return _walk(value, lambda part: shorten_text(part, known), _shorten_path)


def shorten_text(text: str, users: re.Pattern[str] | None = None) -> str:
    """Shortens what a text names: absolute paths to their last parts, homes to "~", hosts and addresses to words.

    Args:
        text: A sentence, a message, a label.
        users: Names of users that are known from paths.
    """
    if not any(mark in text for mark in "/\\@.") and users is None:
        return text
    text = _ABSOLUTE.sub(lambda found: _shorten_path(found[0]), text)
    text = _HOME.sub("~", text)
    text = _AT_HOST.sub("user@host", text)
    text = _ADDRESS.sub("address", text)
    text = _HOST.sub("host", text)
    return users.sub("user", text) if users is not None else text


def _shorten_path(path: str) -> str:
    """The last parts of an absolute path; relative ones stay."""
    library = _LIBRARY.match(path)
    if library:
        return f"…/{library[1]}"
    home = _HOME.match(path)
    if home:
        path = "~" + path[home.end() :]
    elif not re.match(r"/|[A-Za-z]:\\|\\\\", path):
        return path
    pieces = [piece for piece in re.split(r"[/\\]", path) if piece]
    if len(pieces) <= _PARTS:
        return "/".join(pieces) if home else "…/" + "/".join(pieces[-2:])
    return "…/" + "/".join(pieces[-_PARTS:])


def _users(report: Any) -> set[str]:
    found: set[str] = set()

    def look(text: str) -> str:
        found.update(home[1] for home in _HOME.finditer(text) if home[1])
        return text

    _walk(report, look, look)
    return {name for name in found if len(name) > 2 and name.lower() not in _COMMON and name.isprintable()}


@cache
def _names(cls: type) -> tuple[str, ...]:
    """Fields of a dataclass that may hold texts."""
    return tuple(field.name for field in dataclasses.fields(cls) if field.name not in _KEPT)


def _walk(value: _T, text: Callable[[str], str], path: Callable[[str], str]) -> _T:
    """Rebuilds a value of the model with its texts replaced; fields that hold one path go through `path`."""
    seen: dict[str, str] = {}
    paths: dict[str, str] = {}

    def say(part: str) -> str:
        if part not in seen:
            seen[part] = text(part)
        return seen[part]

    def place(part: str) -> str:
        if part not in paths:
            paths[part] = text(path(part))
        return paths[part]

    def tuple_of(items: tuple[Any, ...]) -> tuple[Any, ...]:
        if not items or isinstance(items[0], int | float):
            return items
        made = tuple(item if item is None or isinstance(item, int | float) else go(item) for item in items)
        return items if all(new is old for new, old in zip(made, items, strict=True)) else made

    def go(item: Any) -> Any:
        if isinstance(item, str):
            new = say(item)
            return item if new == item else new
        if isinstance(item, Frame):
            frame = Frame(place(item.filename), item.line, say(item.name))
            return item if frame == item else frame
        if isinstance(item, tuple):
            return tuple_of(item)
        if isinstance(item, Mapping):
            return {go(key): go(inner) for key, inner in item.items()}
        if not dataclasses.is_dataclass(item):
            return item
        changed = {}
        kind: Any = type(item)
        for name in _names(kind):
            old = getattr(item, name)
            if not old or isinstance(old, int | float):
                continue
            new = place(old) if name in _PATHS and isinstance(old, str) else go(old)
            if new is not old and new != old:
                changed[name] = new
        return dataclasses.replace(item, **changed) if changed and not isinstance(item, type) else item

    result: _T = go(value)
    return result


def _hash(name: str, kind: str) -> str:
    return f"{kind}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _hash_file(path: str) -> str:
    name = re.split(r"[/\\]", path)[-1]
    stem, dot, ending = name.partition(".")
    return _hash(stem, "file") + (dot + ending if re.fullmatch(r"[\w.]{1,16}", ending) else "")


def _hash_names(report: Report) -> Report:
    text, path = _hashers(report, _labels(report))
    return _walk(_without_hosts(_blank(report)), text, path)


def _without_hosts(report: Report) -> Report:
    """Hashes the hosts of a job, and ranks that only a file's name tells apart."""
    job = report.job
    if job is None:
        return report
    hosts = {row.host for row in job.rows if row.host} | {row.name for row in job.rows if row.rank is None}
    pattern = re.compile("|".join(re.escape(name) for name in sorted(hosts, key=len, reverse=True)) or "(?!)")

    def text(part: str) -> str:
        return pattern.sub(lambda found: _hash(found[0], "host"), part)

    return dataclasses.replace(report, job=_walk(job, text, text))


def _hashers(value: Any, labels: list[str]) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """(for texts, for paths): what replaces the names that occur in a record of the model or in labels."""
    names: dict[str, str] = {}
    public: set[str] = {"<module>", "main", "forward", "backward", "step", "__init__", "__call__", ""}

    def collect(value: Any) -> None:
        if isinstance(value, StackLine) and value.kind == "folded":
            return
        file = getattr(value, "file", None) or getattr(value, "filename", None)
        function = getattr(value, "function", None) or getattr(value, "name", None)
        library = getattr(value, "kind", "") == "library" or bool(file and _LIBRARY.match(file))
        if isinstance(file, str) and isinstance(function, str):
            if library:
                public.update({re.split(r"[/\\]", file)[-1], function})
            else:
                names[re.split(r"[/\\]", file)[-1]] = _hash_file(file)
                names[function] = _hash(function, "fn")
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for field in dataclasses.fields(value):
                collect(getattr(value, field.name))
        elif isinstance(value, tuple) and not isinstance(value, Frame):
            for item in value:
                if not isinstance(item, int | float | str):
                    collect(item)

    collect(value)
    for label in labels:
        found = re.fullmatch(r"(.*?)(?::\d+)?(?: (\S+))?", label)
        if found and found[1] and "." in found[1]:
            names.setdefault(re.split(r"[/\\]", found[1])[-1], _hash_file(found[1]))
            if found[2]:
                names.setdefault(found[2], _hash(found[2], "fn"))
    for name in public:
        names.pop(name, None)
    pattern = re.compile(
        r"(?<!\w)(?:[\w.~…@+-]*[/\\])*("
        + ("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or "(?!)")
        + r")(?!\w)"
    )

    def text(part: str) -> str:
        return pattern.sub(lambda found: names[found[1]], part)

    def path(part: str) -> str:
        return part if _LIBRARY.match(part) or not part else names.get(re.split(r"[/\\]", part)[-1], _hash_file(part))

    return text, path


def _labels(report: Report) -> list[str]:
    """Texts of the form "file:line function" that no frame may stand behind."""
    labels = [remedy.location or "" for remedy in report.remedies]
    if report.request is not None:
        labels.append(report.request.stack_label or "")
    if report.timeline is not None:
        labels += [band.label for band in report.timeline.bands]
    if report.segment_map is not None:
        labels += [piece.label for segment in report.segment_map.segments for piece in segment.pieces]
    return [label for label in labels if label] + [label for other in report.others for label in _labels(other)]


def _blank(report: Report) -> Report:
    """Drops the texts that are quoted whole: source lines and messages."""
    return dataclasses.replace(
        report,
        culprits=tuple(dataclasses.replace(c, source=None) for c in report.culprits),
        oom_events=tuple(dataclasses.replace(e, text="") for e in report.oom_events),
        series=tuple(dataclasses.replace(s, name=_hash(s.name, "series")) for s in report.series),
        others=tuple(_blank(other) for other in report.others),
    )
