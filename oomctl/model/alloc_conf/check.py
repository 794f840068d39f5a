"""The linter: every entry of a settings string, the string as a whole, and a string that says what was meant."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from oomctl.model.alloc_conf.correct import corrected
from oomctl.model.alloc_conf.errors import ConfError
from oomctl.model.alloc_conf.grammar import MAX_LENGTH, read
from oomctl.model.alloc_conf.numbers import shown
from oomctl.model.alloc_conf.option import LAST_RELEASE, Option, dotted
from oomctl.model.alloc_conf.options import BY_KEY, nearest
from oomctl.model.alloc_conf.parse import parse_conf
from oomctl.model.alloc_conf.pieces import Piece, split_pieces
from oomctl.model.alloc_conf.rules import RULES, Setting
from oomctl.model.alloc_conf.types import MIB, AllocConf, ConfIssue
from oomctl.model.common import Version, VersionRange

PLATFORMS: Final = ("linux", "wsl", "windows", "rocm", "jetson")

VERSIONS: Final[tuple[Version, ...]] = (
    *((1, minor) for minor in range(10, 14)),
    *((2, minor) for minor in range(LAST_RELEASE[1] + 1)),
)
"""Releases that read settings, ascending."""

_WHOLE: Final = re.compile(r"[0-9]+")
_DECIMAL: Final = re.compile(r"[0-9]+\.?[0-9]*|\.[0-9]+")
_MAX_ENTRIES: Final = 64


@dataclass(frozen=True, slots=True)
class ConfEntry:
    """One entry of the string, judged on its own.

    Attributes:
        text: As written.
        key: Its key.
        value: Its value as written.
        option: The option of that key, whether or not this version has it; None for a key that nobody knows.
        accepted: Whether this version knows the key.
        legal: Whether this version takes the value.
        effect: The value as torch reads it, in words; "" where it is refused.
        issues: Remarks on this entry, those of the whole string that name its key included.
    """

    text: str
    key: str
    value: str
    option: Option | None
    accepted: bool
    legal: bool
    effect: str
    issues: tuple[ConfIssue, ...]


@dataclass(frozen=True, slots=True)
class ConfCheck:
    """What one torch version makes of a settings string.

    Attributes:
        text: As given.
        torch: (major, minor).
        platform: linux, wsl, windows, rocm or jetson.
        backend: cuda, hip, xpu or npu.
        accepted: False when torch raises on the string.
        raises: Part of torch's own message then.
        conf: The values in effect (of the legal entries, where torch raises).
        entries: Every entry.
        issues: All remarks, errors first.
        corrected: A string that does what was meant and has no errors or warnings; "" is the defaults.
    """

    text: str
    torch: Version
    platform: str
    backend: str
    accepted: bool
    raises: str
    conf: AllocConf
    entries: tuple[ConfEntry, ...]
    issues: tuple[ConfIssue, ...]
    corrected: str

    @property
    def failed(self) -> bool:
        """Whether there is an error."""
        return any(issue.severity == "error" for issue in self.issues)


def check_conf(text: str, torch: Version = (2, 11), platform: str = "linux", backend: str = "cuda") -> ConfCheck:
    """Judges a settings string for one torch version.

    Args:
        text: The settings string.
        torch: (major, minor).
        platform: linux, wsl, windows, rocm or jetson; rocm implies the backend hip.
        backend: cuda, hip, xpu or npu.
    """
    if platform == "rocm" and backend == "cuda":
        backend = "hip"
    if backend == "hip":
        platform = "rocm"
    parsed = parse_conf(text, torch, backend)
    pieces, remarks = split_pieces(text[:MAX_LENGTH], torch)
    entries = [_entry(piece, torch, backend) for piece in pieces[:_MAX_ENTRIES]]
    given = {entry.key: entry.value for entry in entries if entry.accepted and entry.legal}
    setting = Setting(given, _joined(given, torch, backend), torch, platform, backend)
    issues = [*remarks, *_repeated(entries)]
    issues += [issue for entry in entries for issue in entry.issues]
    issues += [issue for rule in RULES for issue in rule(setting)]
    if not parsed.accepted and not any(issue.severity == "error" for issue in issues):
        issues[:0] = parsed.issues  # only the whole fails, for example a size below large_segment_size_mb
    elif parsed.accepted and torch >= (2, 10) and any(issue.severity == "error" for issue in issues):
        lucky = "this torch reads past separators without a look, so the program starts; other versions refuse"
        issues.append(ConfIssue("note", "", lucky))
    rank = {"error": 0, "warning": 1, "note": 2}
    issues = sorted(dict.fromkeys(issues), key=lambda issue: rank[issue.severity])
    return ConfCheck(
        text=text,
        torch=torch,
        platform=platform,
        backend=backend,
        accepted=parsed.accepted,
        raises=parsed.raises,
        conf=parsed.conf,
        entries=tuple(_with_issues(entry, issues) for entry in entries),
        issues=tuple(issues),
        corrected=corrected(pieces[:_MAX_ENTRIES], torch, backend),
    )


def lint(
    text: str, torch: Version | VersionRange, platform: str = "linux", backend: str = "cuda"
) -> tuple[ConfIssue, ...]:
    """Remarks on a settings string, errors first, notes left out.

    Args:
        text: The settings string.
        torch: A version, or a range: then a remark that holds for a part of it says for which part.
        platform: linux, wsl, windows, rocm or jetson.
        backend: cuda, hip, xpu or npu.
    """
    if isinstance(torch, tuple):
        return tuple(i for i in check_conf(text, torch, platform, backend).issues if i.severity != "note")
    low, high = torch.low or (2, 1), torch.high or LAST_RELEASE
    versions = [v for v in VERSIONS if low <= v <= high] or [min(max(low, VERSIONS[0]), LAST_RELEASE)]
    seen: dict[ConfIssue, list[Version]] = {}
    for version in versions:
        for issue in lint(text, version, platform, backend):
            seen.setdefault(issue, []).append(version)
    found = [
        issue if len(where) == len(versions) else replace(issue, message=f"{issue.message} ({_span(where)})")
        for issue, where in seen.items()
    ]
    return tuple(sorted(found, key=lambda issue: issue.severity != "error"))


def _span(versions: list[Version]) -> str:
    first, last = dotted(versions[0]), dotted(versions[-1])
    return f"torch {first}" if first == last else f"torch {first} to {last}"


def _joined(given: dict[str, str], torch: Version, backend: str) -> AllocConf:
    return parse_conf(",".join(f"{key}:{value}" for key, value in given.items()), torch, backend).conf


def _entry(piece: Piece, torch: Version, backend: str) -> ConfEntry:
    option = BY_KEY.get(piece.key)
    accepted = option is not None and option.known(torch)
    issues: list[ConfIssue] = []
    legal, effect = False, ""
    if not accepted:
        issues.append(ConfIssue("error", piece.key, _unknown(piece.key, option, torch)))
    elif not piece.value:
        outcome = "this version ignores it silently" if torch < (2, 0) else "the program does not start"
        issues.append(ConfIssue("error", piece.key, f"has no value; written {piece.key}:VALUE, else {outcome}"))
    else:
        try:
            values = read(f"{piece.key}:{piece.value}", torch, backend).frozen()
        except ConfError as error:
            says = f' (torch: "{error.says}")' if error.says else ""
            issues.append(ConfIssue("error", piece.key, error.message + says))
        else:
            legal, effect = True, _effect(piece, values)
            issues += _prefix(piece, effect)
    return ConfEntry(piece.text, piece.key, piece.value, option, accepted, legal, effect, tuple(issues))


def _unknown(key: str, option: Option | None, torch: Version) -> str:
    if option is not None and option.since is None:
        return "accepted by no released torch: the program does not start"
    if option is not None:
        return f"not accepted by torch {dotted(torch)} ({option.availability}): the program does not start"
    near = nearest(key, torch)
    return f"no torch has an option {shown(key)}" + (f"; did you mean {near}?" if near else "")


def _prefix(piece: Piece, effect: str) -> list[ConfIssue]:
    """Torch reads numbers by prefix, so that a unit or a decimal is dropped without a word."""
    whole = piece.key.endswith(("_mb", "_num_register_threads"))
    if not whole and not piece.key.endswith(("_threshold", "_fraction")):
        return []
    if (_WHOLE if whole else _DECIMAL).fullmatch(piece.value):
        return []
    return [ConfIssue("warning", piece.key, f"{shown(piece.value)} is read as {effect}; write a plain number")]


def _effect(piece: Piece, conf: AllocConf) -> str:
    """The value as torch reads it."""
    sizes = {
        "max_split_size_mb": conf.max_split_size,
        "max_non_split_rounding_mb": conf.max_non_split_rounding,
        "large_segment_size_mb": conf.large_segment_size,
        "roundup_bypass_threshold_mb": conf.roundup_bypass_threshold,
    }
    size = sizes.get(piece.key)
    if size is not None:
        return f"{size // MIB} MiB"
    if piece.key == "garbage_collection_threshold":
        return f"{conf.garbage_collection_threshold:g}"
    if piece.key == "per_process_memory_fraction":
        return f"{conf.per_process_memory_fraction:g}"
    if piece.key == "roundup_power2_divisions" and len(set(conf.roundup_power2_divisions)) == 1:
        return f"{conf.roundup_power2_divisions[0]} at every size"
    if piece.key == "roundup_power2_divisions":
        return "by size"
    return piece.value


def _repeated(entries: list[ConfEntry]) -> list[ConfIssue]:
    keys = [entry.key for entry in entries]
    twice = dict.fromkeys(key for key in keys if keys.count(key) > 1)
    return [ConfIssue("warning", key, "given more than once; the last one counts") for key in twice]


def _with_issues(entry: ConfEntry, issues: list[ConfIssue]) -> ConfEntry:
    return replace(entry, issues=tuple(issue for issue in issues if issue.key == entry.key and entry.key))
