"""Reports that can be passed on: homes, users, hosts and absolute prefixes shortened, or every name hashed."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

from oomctl.model.alloc_conf import ConfIssue
from oomctl.model.common import without_number
from oomctl.model.diff import DiffSteps, SettingChange, StepPair
from oomctl.model.report import Mark, Report, StackLine, StepRow, Steps
from oomctl.model.stacks import Frame
from oomctl.report.base import MODES
from oomctl.report.public import hide_words, private_words, public_function, public_mark, public_path

DESCRIPTIONS: Final = {
    "paths": "homes, users, hosts and absolute prefixes shortened",
    "all": "every name of a file, function, input, mark or unknown setting hashed",
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
_SETTINGS: Final = frozenset({"alloc_conf", "recorded_conf"})
_MARKS: Final = {Steps: "name", StepRow: "label", Mark: "label", DiffSteps: "name", StepPair: "label"}
_QUOTED: Final = re.compile(r"'([^']*)'")
_PROCESS: Final = re.compile(r"(?m)^(Process \d+ )(?!python[\d.]*: )(\S.*?)(?=: )")
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
        return _walk(record, *_hashers(record, []))

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

    def text(part: str) -> str:
        return shorten_text(part, known)

    return _walk(value, text, lambda path: text(_shorten_path(path)))


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


def _walk(
    value: _T,
    text: Callable[[str], str],
    path: Callable[[str], str],
    own: Callable[[Any, str, str], str | None] | None = None,
) -> _T:
    """Rebuilds a value of the model with its texts replaced.

    Args:
        value: A record of the model.
        text: For texts.
        path: For fields that hold one path.
        own: For a field that has a rule of its own, from (record, field, text); None where it has none.
    """
    seen: dict[str, str] = {}
    paths: dict[str, str] = {}

    def say(part: str) -> str:
        if part not in seen:
            seen[part] = text(part)
        return seen[part]

    def place(part: str) -> str:
        if part not in paths:
            paths[part] = path(part)
        return paths[part]

    def tuple_of(items: tuple[Any, ...]) -> tuple[Any, ...]:
        if not items or isinstance(items[0], int | float):
            return items
        made = tuple(item if item is None or isinstance(item, int | float) else go(item) for item in items)
        return items if all(new is old for new, old in zip(made, items, strict=True)) else made

    def go(item: Any) -> Any:
        if isinstance(item, str):
            said = say(item)
            return item if said == item else said
        if isinstance(item, Frame):
            told = own(item, "name", item.name) if own is not None else None
            frame = Frame(place(item.filename), item.line, say(item.name) if told is None else told)
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
            new: Any = own(item, name, old) if own is not None and isinstance(old, str) else None
            if new is None:
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
    return _walk(_without_hosts(_blank(report)), *_hashers(report, _labels(report)))


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


class _Hashers(NamedTuple):
    """What replaces names: in texts, in fields that hold a path, and in fields with a rule of their own."""

    text: Callable[[str], str]
    path: Callable[[str], str]
    own: Callable[[Any, str, str], str | None]


def _hashers(value: Any, labels: list[str]) -> _Hashers:
    """What replaces the names that occur in a record of the model or in labels.

    A field beside its file is told by that file. In a sentence a name that both the user and a library have is taken
    for the user's.
    """
    names: dict[str, str] = {}
    public: set[str] = set()
    settings: set[str] = set()

    def collect(item: Any) -> None:
        if isinstance(item, StackLine) and item.kind == "folded":
            return
        file, function = _place_of(item)
        if file and function:
            name = re.split(r"[/\\]", file)[-1]
            if public_path(file) is None:
                names[name] = names[file] = _hash_file(file)
            elif file != "??":
                public.add(name)
            if not public_function(file, function):
                names[function] = _hash(function, "fn")
        if dataclasses.is_dataclass(item) and not isinstance(item, type):
            for field in dataclasses.fields(item):
                old = getattr(item, field.name)
                if not isinstance(old, str):
                    collect(old)
                elif _marks(item, field.name) and not public_mark(old):
                    names[old] = _hash_mark(old)
                elif _settings(item, field.name):
                    settings.add("".join(old.split()))
                    names.update((word, _hash(word, "conf")) for word in private_words(old))
        elif isinstance(item, tuple) and not isinstance(item, Frame):
            for part in item:
                if not isinstance(part, int | float | str):
                    collect(part)

    collect(value)
    for label in labels:
        found = re.fullmatch(r"(.*?)(?::\d+)?(?: (\S+))?", label)
        if found and found[1] and "." in found[1]:
            name = re.split(r"[/\\]", found[1])[-1]
            if name in names or (name not in public and public_path(found[1]) is None):
                names.setdefault(name, _hash_file(found[1]))
                if found[2] and not public_function("", found[2]):
                    names.setdefault(found[2], _hash(found[2], "fn"))
    pattern = re.compile(
        r"(?<!\w)((?:[\w.~…@+-]*[/\\])*)("
        + ("|".join(re.escape(name) for name in sorted(names, key=len, reverse=True)) or "(?!)")
        + r")(?!\w)"
    )

    def text(part: str) -> str:
        part = _ABSOLUTE.sub(lambda found: path(found[0]), part)
        part = _PROCESS.sub(lambda found: found[1] + _hash(found[2], "process"), part)
        return pattern.sub(lambda found: _named(found, names), part)

    def path(part: str) -> str:
        known = public_path(part)
        return known if known is not None else _hash_file(part)

    def quoted(found: re.Match[str]) -> str:
        piece = found[1].removesuffix("...")
        theirs = any("".join(piece.split()) in one for one in settings)
        return f"'{_hash_settings(piece)}'" if theirs else found[0]

    def own(item: Any, field: str, old: str) -> str | None:
        file, function = _place_of(item)
        if file and field in ("function", "name") and old == function:
            return old if public_function(file, old) else _hash(old, "fn")
        if _marks(item, field):
            return old if public_mark(old) else _hash_mark(old)
        if _settings(item, field):
            return _hash_settings(old)
        if isinstance(item, ConfIssue) and field == "message":
            return text(_QUOTED.sub(quoted, old))
        return None

    return _Hashers(text, path, own)


def _place_of(item: Any) -> tuple[str, str]:
    """(file, function) of a record that has both, else empty texts."""
    if isinstance(item, Frame):
        return item.filename, item.name
    file, function = getattr(item, "file", None), getattr(item, "function", None)
    return (file, function) if isinstance(file, str) and isinstance(function, str) else ("", "")


def _marks(item: Any, field: str) -> bool:
    """Whether a field holds a name that the program gave to its steps or scopes."""
    if isinstance(item, Mark) and item.kind != "step":
        return False
    return _MARKS.get(type(item)) == field


def _settings(item: Any, field: str) -> bool:
    """Whether a field holds a settings string or a part of one."""
    return field in _SETTINGS or isinstance(item, SettingChange) or (isinstance(item, ConfIssue) and field == "key")


def _hash_mark(label: str) -> str:
    """A mark's name hashed; the number of a step stays, so that steps still count."""
    stem = without_number(label)
    return _hash(stem, "mark") + label[len(stem) :]


def _hash_settings(settings: str) -> str:
    """A settings string with what torch does not know hashed."""
    return hide_words(settings, lambda word: _hash(word, "conf"))


def _named(found: re.Match[str], names: Mapping[str, str]) -> str:
    """A name's replacement where it is the user's: not inside a public path, not a name of torch's own."""
    if found[1] and public_path(found[1] + found[2]) is not None:
        return found[0]
    if re.search(r"\btorch(?:\.\w+)*\.$", found.string[: found.start()][-80:]):
        return found[0]
    return names[found[2]]


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
        oom_events=tuple(dataclasses.replace(e, text="", code=("",) * len(e.code)) for e in report.oom_events),
        series=tuple(dataclasses.replace(s, name=_hash(s.name, "series")) for s in report.series),
        others=tuple(_blank(other) for other in report.others),
    )
