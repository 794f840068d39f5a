"""Many ranks: the files of a folder, a pattern, an archive or a store, gathered by rank."""

from __future__ import annotations

import glob
import os
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from oomctl.errors import OomctlError
from oomctl.model.common import Skipped
from oomctl.model.evidence import Evidence
from oomctl.sources.bundle import FILES, INCIDENT
from oomctl.sources.parts import URL, Part, filesystem, members_of, reason_of
from oomctl.sources.rank_names import Name, natural, place_in, read_name
from oomctl.sources.reading import read_parts

MOST_FILES: Final = 200_000
"""Files of one folder that are looked at."""
MOST_MEMBERS: Final = 4096
"""Files of one archive that are read as ranks: a directory of any size fits into very few bytes."""
MOST_TEXTS: Final = 8
"""Texts that are read with one rank's snapshot."""
_DEEPEST: Final = 12
_TEXTS: Final = (".log", ".txt", ".out", ".err", ".stderr", ".stdout")
_SNAPSHOTS: Final = (".pickle", ".pkl", ".p", ".json", ".html", ".htm", ".snapshot", ".memory_snapshot", ".zip")
_PACKED: Final = (".gz", ".xz", ".bz2", ".zst")
_PICTURES: Final = re.compile(r"(?:plot|flamegraph|trace_plot)\.html?$", re.IGNORECASE)
"""Pages that trainers write beside the snapshot and of it."""
_DUMPED: Final = re.compile(r"rank|snapshot|dump|mem|oom|report")
"""What the name of a snapshot or report in JSON says; folders are full of other JSON, such as config.json."""
_MAGIC: Final = re.compile(r"[*?\[]")
_FAILURE: Final = re.compile(r"oom|_exit(?:[/\\]|$)|out.?of.?memory|exception|crash", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RankFiles:
    """One rank's files, ready to be read anywhere.

    Attributes:
        name: What their names tell.
        label: The rank for people.
        parts: Files in the order of reading.
    """

    name: Name
    label: str
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Found:
    """Ranks of one job.

    Attributes:
        ranks: In order of rank.
        shared: Texts that belong to no one rank, for example the launcher's log.
        limits: What was left aside.
    """

    ranks: tuple[RankFiles, ...]
    shared: tuple[Part, ...] = ()
    limits: tuple[Skipped, ...] = ()


@dataclass
class _Unit:
    """What was written at one time by one rank: a snapshot, a bundle, or a text."""

    relative: str
    parts: tuple[Part, ...]
    is_text: bool
    name: Name = field(default_factory=Name)


def find_ranks(
    paths: Sequence[str], pattern: re.Pattern[str] | None = None, layout: tuple[tuple[str, int], ...] = ()
) -> Found | None:
    """Gathers files by rank.

    Args:
        paths: Folders, patterns such as "dumps/*.pickle", archives, URLs, files.
        pattern: From `rank_names.pattern_of`.
        layout: From `rank_names.layout_of`.

    Returns:
        The ranks; None where the paths are one incident's files as they stand.

    Raises:
        OomctlError: A folder or pattern holds nothing to read.
    """
    units: list[_Unit] = []
    several = False
    for path, folder in zip(paths, _folders(paths), strict=True):
        listed, is_many = _listed(path)
        several = several or is_many
        for unit in listed:
            unit.relative = f"{folder}{unit.relative}"
        units += listed
    dumps = {unit.relative for unit in units if not unit.is_text}
    several = several or len({os.path.basename(d) for d in dumps}) < len(dumps)  # */snapshot.pickle, as shells list it
    for unit in units:
        unit.name = read_name(unit.relative, pattern)
    ranked = {unit.name.key for unit in units if unit.name.key is not None and not unit.is_text}
    if not several and len(ranked) < 2:
        return None
    return _gathered(units, layout)


def read_rank(files: RankFiles, max_bytes: int | None = None) -> Evidence:
    """Reads one rank's files; a text that cannot be read is left out and said.

    A rank that says nothing about memory is one that ran, or that another one's end stopped.

    Raises:
        OomctlError: Nothing of it can be read.
    """
    return read_parts([(part.name, part.opened) for part in files.parts], max_bytes=max_bytes, related=False)


def read_shared(parts: Iterable[Part], max_bytes: int | None = None) -> Evidence | None:
    """Reads texts of the whole job; None where none of them tells anything."""
    opened = [(part.name, part.opened) for part in parts]
    try:
        return read_parts(opened, max_bytes=max_bytes) if opened else None
    except OomctlError:
        return None


def incident_parts(paths: Sequence[str]) -> tuple[Part, ...] | None:
    """The files of one incident where folders, patterns or URLs stand for them; None where the paths are plain.

    Args:
        paths: As typed.

    Raises:
        OomctlError: They hold nothing, or several ranks.
    """
    if not any(_is_many(path) or URL.match(path) for path in paths):
        return None
    found = find_ranks(paths)
    if found is not None and len(found.ranks) > 1:
        raise OomctlError(
            f"the files of {len(found.ranks):,} ranks, and one incident is wanted here",
            "give one rank's file, or oomctl diagnose the folder",
        )
    if found is not None:
        return found.ranks[0].parts + found.shared
    return tuple(part for path in paths for unit in _listed(path)[0] for part in unit.parts)


def _is_many(path: str) -> bool:
    """Whether a path stands for several files: a folder that is no bundle, a pattern."""
    return _is_pattern(path) or (os.path.isdir(path) and not os.path.isfile(os.path.join(path, INCIDENT)))


def _is_pattern(path: str) -> bool:
    return bool(_MAGIC.search(path)) and not os.path.exists(path)


def _folders(paths: Sequence[str]) -> list[str]:
    """For each path the folder that its names are relative to, as it is told from the others' folders."""
    roots = {}
    for path in paths:
        if URL.match(path):
            roots[path] = path if not _MAGIC.search(path) else _root(path)
        elif path != "-":
            roots[path] = os.path.abspath(
                _root(path) if _is_pattern(path) else path if _is_many(path) else os.path.dirname(path)
            ).replace(os.sep, "/")
    if not roots:
        return [""] * len(paths)
    common = _common_start([f"{root}/" for root in roots.values()]).rpartition("/")[0]
    below = [roots.get(path, common)[len(common) :].strip("/") for path in paths]
    return [f"{folder}/" if folder else "" for folder in below]


def _listed(path: str) -> tuple[list[_Unit], bool]:
    """(units, whether the path stands for several files)."""
    if URL.match(path):
        return _remote(path)
    if path == "-":
        return [], False
    if _is_pattern(path):
        found = sorted(glob.glob(path, recursive=True), key=natural)
        if not found:
            raise OomctlError(f"{path}: no such files", "quote the pattern, or check the folder")
        root = _root(path)
        units: list[_Unit] = []
        for one in found:
            if os.path.isdir(one):
                units += _folder(one, os.path.relpath(one, root))
            else:
                units += _file(one, os.path.relpath(one, root), chosen=True)
        return units, True
    if os.path.isdir(path):
        name = os.path.basename(os.path.abspath(path))
        if os.path.isfile(os.path.join(path, INCIDENT)):
            return _folder(path, name), False
        units = _folder(path, "")
        if not units:
            raise OomctlError(f"{path}: no snapshot or log in this folder", "give the folder that the ranks wrote into")
        return units, True
    if os.path.isfile(path) and zipfile.is_zipfile(path):  # a pipe is not to be opened twice
        units = _file(path, os.path.basename(path), chosen=True)
        return units, len({u.name.key for u in _named(units) if u.name.key is not None}) > 1
    return [_Unit(os.path.basename(path), (Part(path, path),), is_text(path))], False


def _named(units: list[_Unit]) -> list[_Unit]:
    for unit in units:
        unit.name = read_name(unit.relative)
    return units


def _root(pattern: str) -> str:
    """The folder that everything of a pattern lies in."""
    head = _MAGIC.split(pattern, maxsplit=1)[0]
    return os.path.dirname(head) or "."


def _folder(folder: str, relative: str) -> list[_Unit]:
    units: list[_Unit] = []
    count = 0
    for here, folders, files in os.walk(folder, followlinks=False):
        below = os.path.relpath(here, folder)
        near = os.path.normpath(os.path.join(relative, below)) if below != "." or relative else ""
        near = "" if near == "." else near
        folders[:] = sorted((f for f in folders if not f.startswith((".", "__"))), key=natural)
        if below.count(os.sep) >= _DEEPEST:
            folders.clear()
        if INCIDENT in files:
            parts = tuple(Part(os.path.join(here, f), os.path.join(here, f)) for f in FILES if f in files)
            units.append(_Unit(near or os.path.basename(os.path.abspath(here)), parts, False))
            folders.clear()
            continue
        for file in sorted(files, key=natural):
            count += 1
            if count > MOST_FILES:
                raise OomctlError(f"{folder}: more than {MOST_FILES:,} files", "give a pattern such as DIR/*.pickle")
            units += _file(os.path.join(here, file), os.path.join(near, file))
    return units


def _file(path: str, relative: str, chosen: bool = False) -> list[_Unit]:
    """The units that a local file is: one, none where its name is of no known kind, or those in an archive."""
    if not os.path.isfile(path) or not (chosen or _is_wanted(os.path.basename(path))):
        return []  # a pipe in a folder would be waited for
    if path.lower().endswith(".zip") and zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = [m.filename for m in members_of(archive)]
        if len(names) > MOST_MEMBERS:
            raise OomctlError(f"a zip of {len(names):,} files; at most {MOST_MEMBERS:,} are read", "unpack it")
        units = _members(path, relative, names)
        if units is not None:
            return units
    return [_Unit(relative, (Part(path, path),), is_text(path))]


def _members(path: str, relative: str, names: Sequence[str]) -> list[_Unit] | None:
    """Units in an archive; None where it is no job but one incident."""
    there = frozenset(names)
    stem = re.sub(r"\.zip$", "", relative, flags=re.IGNORECASE)
    bundles = {n.rpartition("/")[0] for n in names if n.rpartition("/")[2] == INCIDENT}
    units = []
    for folder in sorted(bundles, key=natural):
        prefix = f"{folder}/" if folder else ""
        parts = tuple(Part(f"{path}!{prefix}{f}", path, prefix + f) for f in FILES if prefix + f in there)
        units.append(_Unit(f"{stem}/{folder}", parts, False))
    for name in sorted(names, key=natural):
        folder, _, file = name.rpartition("/")
        if folder in bundles or (folder and any(f and folder.startswith(f + "/") for f in bundles)):
            continue
        if _is_wanted(file) and not name.startswith("__MACOSX/"):
            units.append(_Unit(f"{stem}/{name}", (Part(f"{path}!{name}", path, name),), is_text(name)))
    if len(units) == 1 or not any(not u.is_text for u in units):
        return None if not bundles else units
    return units


def _remote(url: str) -> tuple[list[_Unit], bool]:
    """Files of a store that fsspec reaches."""
    fs, path = filesystem(url)
    scheme = url.partition("://")[0]
    try:
        if _MAGIC.search(path):
            names, root = sorted(fs.glob(path)), _root(path)
        elif fs.isdir(path):
            names, root = sorted(fs.find(path)), path
        else:
            return [_Unit(path.rpartition("/")[2], (Part(url, url),), is_text(path))], False
    except Exception as error:  # each store raises its own
        raise OomctlError(f"{url}: {reason_of(error)}", "check the address and the credentials") from error
    bundles = {n.rpartition("/")[0] for n in names if n.rpartition("/")[2] == INCIDENT}
    units = []

    def part(name: str) -> Part:
        address = f"{scheme}://{str(name).removeprefix(scheme + '://')}"
        return Part(address, address)

    for folder in sorted(bundles, key=natural):
        parts = tuple(part(f"{folder}/{f}") for f in FILES if f"{folder}/{f}" in names)
        units.append(_Unit(folder.removeprefix(root).strip("/"), parts, False))
    for name in names[:MOST_FILES]:
        folder, _, file = name.rpartition("/")
        if folder not in bundles and _is_wanted(file):
            units.append(_Unit(name.removeprefix(root).strip("/"), (part(name),), is_text(name)))
    if not units:
        raise OomctlError(f"{url}: no snapshot or log there", "give the folder that the ranks wrote into")
    return units, True


def _plain(name: str) -> str:
    lower = name.lower()
    for ending in _PACKED:
        lower = lower.removesuffix(ending)
    return lower


def is_text(name: str) -> bool:
    """Whether a name is that of a log."""
    return _plain(name).endswith(_TEXTS)


def _is_wanted(name: str) -> bool:
    plain = _plain(name)
    if name.startswith(".") or _PICTURES.search(plain):
        return False
    if plain.endswith(".json"):
        return bool(_DUMPED.search(plain)) or read_name(plain).key is not None
    return plain.endswith((*_TEXTS, *_SNAPSHOTS)) or "memory_snapshot" in plain


def _gathered(units: list[_Unit], layout: tuple[tuple[str, int], ...]) -> Found | None:
    """Units by rank: the latest dump of each, a failure's before any other, with the texts of the same rank."""
    snapshots = [u for u in units if not u.is_text]
    texts = [u for u in units if u.is_text]
    if not snapshots:
        snapshots, texts = [u for u in texts if u.name.key is not None], [u for u in texts if u.name.key is None]
    nameless = all(u.name.key is None for u in snapshots)
    if nameless and len(snapshots) < 2:
        return None
    if nameless:
        _by_difference(snapshots)
    groups: dict[object, list[_Unit]] = {}
    unknown: list[_Unit] = []
    key: object
    for unit in snapshots:
        key = unit.name.key if not nameless else unit.name.host
        if key is None:
            unknown.append(unit)
        else:
            groups.setdefault(key, []).append(unit)
    notes: dict[object, list[_Unit]] = {}
    shared: list[_Unit] = []
    inside: dict[str, set[object]] = {}
    for key, group in groups.items():
        for unit in group:
            inside.setdefault(os.path.dirname(unit.relative), set()).add(key)
    for unit in texts:
        folder = os.path.dirname(unit.relative)
        near = set(groups) if len(groups) == 1 else inside.get(folder, set()) if folder else set()
        key = unit.name.key
        if key is None and len(near) == 1:
            (key,) = near  # the one rank that there is, or that wrote into this folder
        if key in groups:
            notes.setdefault(key, []).append(unit)
        else:
            shared.append(unit)
    ranks, aside = [], 0
    for key, group in groups.items():
        latest = max(group, key=lambda u: (bool(_FAILURE.search(u.relative)), natural(u.relative)))
        aside += len(group) - 1
        beside = sorted(notes.get(key, ()), key=lambda u: natural(u.relative))[-MOST_TEXTS:]
        parts = latest.parts + tuple(p for u in beside for p in u.parts)
        name = latest.name
        if name.rank is not None and layout:
            name = replace(name, stage=place_in(name.rank, layout))
        ranks.append(RankFiles(name, name.label, parts))
    ranks.sort(key=lambda r: (r.name.rank is None, r.name.rank or 0, natural(r.label)))
    limits = []
    if aside:
        limits.append(
            Skipped("earlier dumps of the same ranks", f"{aside:,} left aside; the latest of each rank counts")
        )
    if unknown:
        names = ", ".join(u.relative for u in unknown[:3])
        limits.append(
            Skipped(
                "files whose names tell no rank",
                f"{len(unknown):,} were left aside: {names}" + (" ..." if len(unknown) > 3 else ""),
                "say where the rank stands: --rank-pattern 'dump_{rank}.pickle'",
            )
        )
    return Found(tuple(ranks), tuple(p for u in shared[:MOST_TEXTS] for p in u.parts), tuple(limits))


def _by_difference(units: list[_Unit]) -> None:
    """Names without a rank, such as those of hosts: what each has of its own is what it is called."""
    names = [u.relative.replace("\\", "/") for u in units]
    first = re.sub(r"[A-Za-z0-9]*$", "", _common_start(names))
    last = re.sub(r"^[A-Za-z0-9]*", "", _common_start([n[len(first) :][::-1] for n in names])[::-1])
    own = [name[len(first) : len(name) - len(last)] or name for name in names]
    hosts = [u.name.host for u in units]
    distinct = all(hosts) and len(set(hosts)) == len(hosts)
    for unit, part, host in zip(units, own, hosts, strict=True):
        unit.name = replace(unit.name, host=host if distinct else part)


def _common_start(texts: Sequence[str]) -> str:
    low, high = min(texts), max(texts)
    return next((low[:i] for i, char in enumerate(low) if char != high[i]), low)
