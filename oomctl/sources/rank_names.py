"""Which rank a file is of, from its name: the schemes of launchers and trainers, or a pattern of the user's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from oomctl.errors import OomctlError

_RANK: Final = re.compile(r"(?<![a-z])(?:global[ _.-]?)?rank[ _.=-]?([0-9]{1,6})(?![0-9])", re.IGNORECASE)
"""rank3, rank_3, oom_rank-3_snapshot.pickle (Megatron), rank3_oom_snapshot.pickle and rank3.5.memory_snapshot
(Composer), iteration_10/rank3_memory_snapshot.pickle (torchtitan), oom-20260131T120000Z-rank3 (oomctl run)."""
_PLACE_RANK: Final = re.compile(r"(?<![a-z])(?:local|node|mp|tp|pp|dp|ep|cp)[ _.-]?rank", re.IGNORECASE)
_LOCAL: Final = re.compile(
    r"(?<![a-z])(?:local[ _.-]?rank|gpu|cuda|device|worker|proc)[ _.=-]?([0-9]{1,4})(?![0-9])", re.IGNORECASE
)
_ATTEMPT: Final = re.compile(r"attempt_[0-9]+[/\\]([0-9]{1,4})[/\\]")
"""torchrun's folder of logs."""
_MEGATRON: Final = re.compile(r"(?<![a-z])mp_rank_([0-9]{2})(?:_([0-9]{3}))?(?:_([0-9]{3}))?", re.IGNORECASE)
"""Megatron's folders: tensor, pipeline and expert rank, without the data-parallel one."""
_STAGE: Final = re.compile(
    r"(?<![a-z])(tp|pp|dp|ep|cp|stage)(?:[ _.-]?rank)?[ _.=-]?([0-9]{1,4})(?![0-9])", re.IGNORECASE
)
_HOST: Final = re.compile(
    r"(?<![a-z0-9])((?:node|host|worker|gpu|nid|dgx|ip|hgx|compute|server|pod)[a-z]*-?[0-9][a-z0-9-]*)", re.IGNORECASE
)
_NUMBER: Final = re.compile(r"[0-9]+")
_FIELDS: Final = {
    "rank": r"(?P<rank>[0-9]{1,6})",
    "local_rank": r"(?P<local>[0-9]{1,4})",
    "host": r"(?P<host>[A-Za-z0-9.-]{1,253})",
    **{name: rf"(?P<{name}>[0-9]{{1,4}})" for name in ("tp", "pp", "dp", "ep", "cp", "stage")},
}
_LETTERS: Final = ("[0-9]", "[A-Za-z0-9.-]")
"""What a number is made of, and a host."""
_LONGEST_PATTERN: Final = 500
_LONGEST_PATH: Final = 1024
"""Characters from the end of a path that are looked at; in an archive a name may have 65,535."""
_AXES: Final = ("pp", "stage", "ep", "tp", "cp", "dp")


@dataclass(frozen=True, slots=True)
class Name:
    """What a file's name tells.

    Attributes:
        rank: Global rank, or None.
        local: Rank on its host, or None.
        host: Host, or "".
        stage: Coordinates, for example (("pp", 1),).
    """

    rank: int | None = None
    local: int | None = None
    host: str = ""
    stage: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> tuple[object, ...] | None:
        """What files of the same rank share; None where the name tells no rank."""
        if self.rank is not None:
            return ("rank", self.rank)
        if self.local is not None:
            return ("local", self.host, self.local)
        return ("stage", self.host, *self.stage) if self.stage else None

    @property
    def label(self) -> str:
        """The rank for people."""
        if self.rank is not None:
            return f"rank {self.rank}"
        if self.local is not None:
            return f"{self.host} local rank {self.local}".strip()
        return " ".join(f"{axis} {number}" for axis, number in self.stage) or self.host


def pattern_of(text: str | None) -> re.Pattern[str] | None:
    """A pattern as the user typed it.

    Args:
        text: A regular expression with a group named rank, or a name with {rank}, {local_rank}, {host}, {pp} and the
            like for what varies, * for anything, also nothing, and ? for one character; None is none.

    Raises:
        OomctlError: It names no rank, or is no pattern.
    """
    if text is None:
        return None
    if len(text) > _LONGEST_PATTERN:
        raise OomctlError(
            f"--rank-pattern: {len(text):,} characters; at most {_LONGEST_PATTERN} are taken",
            "give the part of the name in which the rank stands",
        )
    try:
        found = re.compile(text if "(?P<" in text else _expression(text))
    except (re.error, KeyError, ValueError, OverflowError, RecursionError) as error:
        raise OomctlError(
            f"--rank-pattern: not understood: {str(error)[:100]}", "write it as 'dump_{rank}_*.pickle'"
        ) from None
    if not {"rank", "local", *_AXES} & set(found.groupindex):
        raise OomctlError("--rank-pattern names no rank", "put {rank} where the number stands")
    return found


def _expression(text: str) -> str:
    """A regular expression for a name with {fields}, * and ?; the time that it takes does not grow with the stars.

    What stands between two stars is looked for once, from the left, and kept where it was found first (a lookahead
    with a reference to it, which is never gone back into): so k stars take as long as one.

    Raises:
        KeyError: There is no such field.
        ValueError: Nothing tells two numbers apart.
    """
    if re.search(r"\}(?<!\{host\})\{(?!host\})", text):
        raise ValueError("two numbers without anything between them")
    first, *others = re.split(r"\*+", text)
    found = _chunk(first)
    for number, chunk in enumerate(filter(None, others)):
        found += rf"(?=(?P<_{number}>(?s:.*?){_chunk(chunk)}))(?P=_{number})"
    return found


def _chunk(text: str) -> str:
    """A part without stars; a number or host at its edge is taken whole."""
    parts = [part for part in re.split(r"(\{[a-z_]+\}|\?)", text) if part]
    made = ["(?s:.)" if part == "?" else _FIELDS[part[1:-1]] if _is_field(part) else re.escape(part) for part in parts]
    if parts and _is_field(parts[0]):
        made.insert(0, f"(?<!{_LETTERS[parts[0] == '{host}']})")
    if parts and _is_field(parts[-1]):
        made.append(f"(?!{_LETTERS[parts[-1] == '{host}']})")
    return "".join(made)


def _is_field(part: str) -> bool:
    return part.startswith("{") and part.endswith("}")


def read_name(path: str, pattern: re.Pattern[str] | None = None) -> Name:
    """What a path tells; the file's own name counts before its folders', the inner folder's before the outer's.

    Args:
        path: Relative to what the user gave, with any separator.
        pattern: From `pattern_of`; nothing else is then believed about the rank.
    """
    path = path[-_LONGEST_PATH:].replace("\\", "/")
    if pattern is not None:
        match = pattern.search(path)
        if match is None:
            return Name()
        told = {key: value for key, value in match.groupdict().items() if value is not None}
        numbers = {axis: int(told[axis]) for axis in _AXES if axis in told}
        return Name(
            int(told["rank"]) if "rank" in told else None,
            int(told["local"]) if "local" in told else None,
            told.get("host", ""),
            tuple(numbers.items()),
        )
    rank = local = None
    parts = [part for part in reversed(path.split("/")) if part]
    for part in parts:
        plain = _PLACE_RANK.sub("", part)
        found = _RANK.findall(plain)
        if found:
            rank = int(found[-1])
            break
    for part in parts if rank is None else ():
        found = _LOCAL.findall(part)
        if found:
            local = int(found[-1])
            break
    if rank is None and local is None:
        attempt = _ATTEMPT.findall(path)
        local = int(attempt[-1]) if attempt else None
    return Name(rank, local, _host(parts), _stage(path))


def _host(parts: list[str]) -> str:
    for part in parts:
        found = _HOST.search(part)
        if found and not _LOCAL.fullmatch(found[1]):
            return found[1].rstrip("-")
    return ""


def _stage(path: str) -> tuple[tuple[str, int], ...]:
    found: dict[str, int] = {}
    for match in _MEGATRON.finditer(path):
        for axis, number in zip(("tp", "pp", "ep"), match.groups(), strict=True):
            if number is not None:
                found[axis] = int(number)
    for axis, number in _STAGE.findall(_MEGATRON.sub("", path)):
        found[axis.lower()] = int(number)
    return tuple((axis, found[axis]) for axis in _AXES if axis in found)


def layout_of(text: str | None) -> tuple[tuple[str, int], ...]:
    """Sizes of a job's axes, the one that varies fastest with the rank first: "tp=8,dp=16,pp=4".

    Raises:
        OomctlError: It is none.
    """
    axes = []
    for part in (text or "").split(","):
        if part.strip():
            name, _, number = part.partition("=")
            if not re.fullmatch(r"[a-z_]{1,20}", name.strip()) or not re.fullmatch(r"[1-9][0-9]{0,5}", number.strip()):
                raise OomctlError(f"--layout: not understood: {part.strip()[:60]!r}", "write it as tp=8,dp=16,pp=4")
            axes.append((name.strip(), int(number)))
    return tuple(axes)


def place_in(rank: int, layout: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Coordinates of a rank in a layout from `layout_of`."""
    found = []
    for name, size in layout:
        rank, number = divmod(rank, size)
        found.append((name, number))
    return tuple(found)


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """A key that sorts numbers within texts as numbers."""
    parts = re.split(r"([0-9]+)", text)
    return tuple((1, int(part[:18]), "") if _NUMBER.fullmatch(part) else (0, 0, part) for part in parts)
