"""`oomctl conf`: what one torch version makes of an allocator settings string."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from oomctl.cli import exits
from oomctl.cli.options import Json
from oomctl.cli.output import write_stdout
from oomctl.cli.prose import printable, wrap
from oomctl.errors import OomctlError

if TYPE_CHECKING:
    from oomctl.model.alloc_conf import ConfCheck, ConfEntry, ConfIssue
    from oomctl.model.common import Version

_ASSIGNED: Final = re.compile(r"\s*(?:export\s+|set\s+|\$env:)?(PYTORCH_[A-Z]*_?ALLOC_CONF)\s*=\s*(.*)", re.DOTALL)
_BYPASS: Final = ("PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NO_HIP_MEMORY_CACHING")

Settings = Annotated[
    str | None,
    typer.Argument(metavar="[SETTINGS]", help='For example "expandable_segments:True"; the environment by default.'),
]
Release = Annotated[
    str | None, typer.Option("--torch", metavar="VERSION", help="Such as 2.9; the installed torch by default.")
]
Platform = Annotated[
    str | None,
    typer.Option("--platform", metavar="NAME", help="linux, wsl, windows, rocm or jetson; this machine by default."),
]


class _Source(NamedTuple):
    """Where the settings come from."""

    text: str
    name: str | None  # environment variable, where one is named
    ignored: tuple[ConfIssue, ...] = ()


def conf(settings: Settings = None, torch: Release = None, platform: Platform = None, json: Json = False) -> int:
    """Check a PYTORCH_CUDA_ALLOC_CONF string against a version of torch.

    Without SETTINGS the environment is read. Exits with 1 when torch would refuse or ignore something.
    """
    from oomctl.model.alloc_conf import check_conf, env_names

    version, backend, origin = _torch(torch)
    place = _platform(platform, backend)
    backend = "hip" if place == "rocm" else backend
    source = _source(settings, version, backend)
    if source is None:
        if json:
            _print_json({"schema": "oomctl.conf/1", "settings": None, "names": list(env_names(version, backend))})
        else:
            names = " or ".join(env_names(version, backend)) or "any variable"
            write_stdout("\n".join(wrap(f"No allocator settings in the environment ({names}): torch's defaults.")))
        return exits.OK
    check = check_conf(source.text, version, place, backend)
    if json:
        _print_json(_as_json(check, source))
    else:
        write_stdout("\n".join(_lines(check, source, origin)))
    return exits.FINDING if check.failed or source.ignored else exits.OK


def _torch(asked: str | None) -> tuple[Version, str, str]:
    """The version to judge for, the backend of its build, and where the version comes from."""
    from oomctl.model.alloc_conf.option import LAST_RELEASE
    from oomctl.model.common import parse_version

    if asked is not None:
        try:
            return parse_version(asked), "hip" if "rocm" in asked else "cuda", ""
        except ValueError:
            raise OomctlError(f"no version of torch: {asked!r}", "write it as --torch 2.9") from None
    from importlib import metadata

    try:
        installed = metadata.version("torch")
        build = "hip" if "rocm" in installed else "cuda"
        return parse_version(installed), build, "This is the torch that is installed here."
    except (metadata.PackageNotFoundError, ValueError):
        return LAST_RELEASE, "cuda", "No torch is installed here; give --torch for another version."


def _platform(asked: str | None, backend: str) -> str:
    from oomctl.model.alloc_conf import PLATFORMS

    if asked is not None:
        if asked.lower() not in PLATFORMS:
            raise OomctlError(f"no platform {asked!r}", "one of " + ", ".join(PLATFORMS))
        return asked.lower()
    if backend == "hip":
        return "rocm"
    if sys.platform == "win32":
        return "windows"
    if os.path.exists("/etc/nv_tegra_release"):
        return "jetson"
    return "wsl" if "microsoft" in os.uname().release.lower() else "linux"


def _source(settings: str | None, torch: Version, backend: str) -> _Source | None:
    """The settings to judge; None when there are none. Judges the variable's name as well."""
    from oomctl.model.alloc_conf import name_issue

    if settings is None:
        return _from_environment(os.environ, torch, backend)
    assigned = _ASSIGNED.fullmatch(settings)
    if assigned is None:
        return _Source(settings, None)
    issue = name_issue(assigned[1], torch, backend)
    return _Source(assigned[2].strip().strip("\"'"), assigned[1], (issue,) if issue else ())


def _from_environment(environ: Mapping[str, str], torch: Version, backend: str) -> _Source | None:
    """The first honoured variable that is set, even to nothing; the others are remarked upon."""
    from oomctl.model.alloc_conf import ENV_NAMES, ConfIssue, env_names, name_issue

    present = [name for name in ENV_NAMES if name in environ]
    honoured = [name for name in env_names(torch, backend) if name in environ]
    ignored = [issue for name in present if (issue := name_issue(name, torch, backend)) is not None]
    for name in honoured[1:]:
        if environ[name] != environ[honoured[0]]:
            text = f"{name} is set too and has no effect: {honoured[0]} is read first"
            ignored.append(ConfIssue("error", "", text))
    for name in _BYPASS:
        if name in environ:
            ignored.append(ConfIssue("error", "", f"{name} is set: torch caches nothing, so no setting has an effect"))
    if honoured:
        return _Source(environ[honoured[0]], honoured[0], tuple(ignored))
    if present:
        return _Source(environ[present[0]], present[0], tuple(ignored))
    return _Source("", None, tuple(ignored)) if ignored else None


def _lines(check: ConfCheck, source: _Source, origin: str) -> list[str]:
    from oomctl.model.alloc_conf.option import dotted

    issues = [*source.ignored, *check.issues]
    lines = wrap(f"{_verdict(check, issues)} (torch {dotted(check.torch)} on {check.platform})", hang="  ")
    if origin:
        lines += wrap(origin)
    if source.name:
        lines += wrap(f"From {source.name}: {printable(source.text) or '(empty)'}", hang="  ")
    whole = [*source.ignored, *(issue for issue in check.issues if issue.key not in {e.key for e in check.entries})]
    if whole or (check.raises and not check.accepted):
        lines.append("")
    if not check.accepted and check.raises:
        lines += wrap(f"Torch's own message: {printable(check.raises)}", hang="  ")
    for issue in whole:
        name = f"{printable(issue.key)}: " if issue.key else ""
        lines += wrap(f"{issue.severity}: {name}{printable(issue.message)}", hang="  ")
    for entry in check.entries:
        lines += ["", *_entry_lines(entry)]
    if any(divisions > 1 for divisions in check.conf.roundup_power2_divisions):
        lines += ["", *_roundup_lines(check.conf.roundup_power2_divisions)]
    lines += _advice_lines(check, source, issues)
    return lines


def _verdict(check: ConfCheck, issues: list[ConfIssue]) -> str:
    errors = sum(issue.severity == "error" for issue in issues)
    warnings = sum(issue.severity == "warning" for issue in issues)
    counts = [f"{n} {word}{'s' * (n != 1)}" for n, word in ((errors, "error"), (warnings, "warning")) if n]
    if not check.accepted:
        state = "torch refuses these settings: the program does not start"
    elif errors:
        state = "torch starts, but not with what these settings mean"
    elif warnings:
        state = "torch accepts these settings; not all of them do what they seem to"
    else:
        state = "these settings are fine" if check.entries else "torch's defaults"
    return state + (": " + ", ".join(counts) if counts else "")


def _entry_lines(entry: ConfEntry) -> list[str]:
    read_as = f"  (read as {entry.effect})" if entry.effect and entry.effect != entry.value else ""
    if not entry.accepted:
        read_as = "  (unknown to this version)"
    elif not entry.legal:
        read_as = "  (not a legal value)"
    lines = wrap(printable(entry.text) + read_as, hang="    ")
    for issue in entry.issues:
        lines += wrap(f"{issue.severity}: {printable(issue.message)}", "  ", "    ")
    if entry.option is not None:
        if not entry.legal:
            lines += wrap(f"value: {entry.option.value}; {entry.option.availability}", "  ", "    ")
        lines += wrap(f"does: {entry.option.does}", "  ", "    ")
        lines += wrap(f"for: {entry.option.symptom}", "  ", "    ")
        lines += wrap(f"cost: {entry.option.cost}", "  ", "    ")
    return lines


def _roundup_lines(slots: tuple[int, ...]) -> list[str]:
    """The table of divisions, equal neighbours joined; slot i is for sizes from 2^i MiB, slot 0 also for less."""
    from oomctl.units import MIB, format_size

    lines = ["Sizes are rounded up like this:"]
    start = 0
    for i in range(1, len(slots) + 1):
        if i < len(slots) and slots[i] == slots[start]:
            continue
        low, high = format_size(MIB << start), format_size(MIB << i)
        if start == 0:
            span = f"below {high}" if i < len(slots) else "all sizes"
        else:
            span = f"{low} to {high}" if i < len(slots) else f"from {low}"
        what = "not rounded" if slots[start] < 2 else f"to {slots[start]} steps per power of two"
        lines.append(f"  {span:<26} {what}")
        start = i
    return lines


def _advice_lines(check: ConfCheck, source: _Source, issues: list[ConfIssue]) -> list[str]:
    from oomctl.model.alloc_conf import env_names, export_line

    if not any(issue.severity in ("error", "warning") for issue in issues):
        return []
    names = env_names(check.torch, check.backend)
    name = source.name if source.name in names else (names[0] if names else None)
    same = check.corrected == "".join(check.text.split()) and source.name in (None, name)
    if name is None or same:
        return []  # what is wrong lies elsewhere: the platform, another variable
    if not check.corrected:
        return ["", *wrap(f"Without what is refused or has no effect nothing is left: leave {name} unset.")]
    return ["", "Use instead:", "  " + export_line(name, check.corrected, check.platform)]


def _as_json(check: ConfCheck, source: _Source) -> dict[str, Any]:
    from dataclasses import asdict

    from oomctl.model.alloc_conf.option import dotted

    def issue(one: ConfIssue) -> dict[str, Any]:
        return {"severity": one.severity, "key": one.key or None, "message": one.message}

    return {
        "schema": "oomctl.conf/1",
        "settings": check.text,
        "name": source.name,
        "torch": dotted(check.torch),
        "platform": check.platform,
        "backend": check.backend,
        "accepted": check.accepted,
        "raises": check.raises or None,
        "issues": [issue(one) for one in (*source.ignored, *check.issues)],
        "entries": [
            {
                "text": entry.text,
                "key": entry.key,
                "value": entry.value,
                "known": entry.option is not None,
                "accepted": entry.accepted,
                "legal": entry.legal,
                "read_as": entry.effect or None,
                "does": entry.option.does if entry.option else None,
                "symptom": entry.option.symptom if entry.option else None,
                "cost": entry.option.cost if entry.option else None,
                "issues": [issue(one) for one in entry.issues],
            }
            for entry in check.entries
        ],
        "effective": asdict(check.conf) | {"others": dict(check.conf.others)},
        "corrected": check.corrected,
    }


def _print_json(value: dict[str, Any]) -> None:
    import json

    write_stdout(json.dumps(value, indent=2, ensure_ascii=False))
