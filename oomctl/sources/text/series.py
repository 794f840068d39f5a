"""Memory figures that a program prints again and again.

A general detector: every "name value unit" on a line whose name speaks of memory becomes a point of the series that the
same words, with their digits masked, belong to. It knows the layouts of DeepSpeed (MA, Max_MA, CA), Megatron,
torchtitan, mmdetection, psutil, nvidia-smi loops, `key=value` prints and tables under a header.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import Final

from oomctl.model.log import Series, SmiTable
from oomctl.sources.text.normalise import Line, clean_line
from oomctl.sources.text.stream import Figure
from oomctl.units import read_size

MOST_SERIES: Final = 256
MOST_STEPS: Final = 1e15
MOST_SHAPES: Final = 2048
MOST_POINTS: Final = 4096
"""Points of one series that are kept; beyond that every second one is dropped."""

_MEMORY: Final = re.compile(
    r"alloc|reserv|cach|mem(?!ber)|\brss|_rss|rss_|vram|\bMA\b|Max_MA|\bCA\b|Max_CA|svmem|\bused\b|\bgpu_?mb|\bram\b|live_(?:mb|bytes)|footprint|drv\b",
    re.I,
)
_UNIT: Final = r"(?:[KMGT]i?B|[KMGT]|bytes|B)"
_NUMERAL: Final = r"\d{1,24}(?:,\d{3}){0,8}(?:[.,]\d{1,24})?"
_PAIR: Final = re.compile(
    r"(?:[:=]|->|\bis\b)\s*['\"]?"
    rf"(?P<value>{_NUMERAL}(?:[eE][+-]?\d+)?)(?:\s*(?P<unit>{_UNIT})(?![\w%])|(?![\w%]))"
)
"""What follows a name, which is then looked for backwards: forwards, every letter of a long line could start one."""
_NAME: Final = re.compile(r"[\w ./()%\[\]-]{0,61}")
_NAME_START: Final = re.compile(r"[A-Za-z_\u0394]")
_SPACED: Final = re.compile(
    r"\b(?P<name>(?:[Mm]ax_|[Pp]eak[ _])?(?:MA|CA|alloc(?:ated)?|reserved|cached|peak|memory|mem|rss|vram))\s+"
    rf"(?P<value>{_NUMERAL})\s*(?P<unit>[KMGT]i?B|bytes)(?![\w%])",
    re.IGNORECASE,
)
_REVERSED: Final = re.compile(
    rf"(?P<value>{_NUMERAL})\s*(?P<unit>[KMGT]i?B|bytes)\s+"
    r"(?P<name>(?:currently )?(?:allocated|reserved|cached|used))\b",
    re.I,
)
_QUERY: Final = re.compile(r"^\s*(?:(?P<gpu>\d{1,2}),\s*(?:[A-Z][\w -]+,\s*)?)?(?P<value>\d+) MiB(?:,|\s*$)")
_NOT_A_SERIES: Final = re.compile(
    r"Tried to alloc|total capac|allocated by PyTorch|other allocations|memory in use|from (?:large|small) pool|Usage|"
    r"(?:Allocated|Active|Requested|reserved|releasable) memory +\||OOMs|virtual|pages|total-vm|DefaultCPU|"
    r"\.(?:current|peak|freed)\b"
)
_STEP: Final = re.compile(
    r"\b(?:global_?step|steps?|iter(?:ation)?s?|it|batch|update|call|trial|epoch|round|i)\b['\"]?\s*[:=#\[]?\s*(\d{1,10}(?:\.\d+)?)\b",
    re.I,
)
_IN_NAME: Final = re.compile(r"(?<![A-Za-z])([KMGT])i?B(?![A-Za-z])|_(kb|mb|gb|kib|mib|gib|bytes)(?![a-z])", re.I)
_NUMBER: Final = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?")
_DIGIT_WORD: Final = re.compile(r"(?<![\w(])\d")
_FREE: Final = re.compile(rf"(?<![\w.]){_NUMERAL}(?:[eE][+-]?\d+)?")
"""Numbers that are no part of a word."""
_IDENTITY: Final = re.compile(r"\b(gpu|device|cuda|node|rank)[ :#=](\d{1,4})(?![\d.])", re.I)
_HOST_LINE: Final = re.compile(r"svmem|virtual_memory|\bRSS\b|CPU Virtual")
_DEFAULT_UNIT: Final = re.compile(r"[(\[]([KMGT]i?B|bytes)[)\]]", re.I)
_GROUPED: Final = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_PLAIN_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MEGABYTES: Final = re.compile(r"(?:max[_ ])?mem(?:ory)?", re.I)
_HEADER_WORD: Final = re.compile(r"[A-Za-z\u0394][\w\u0394()/\[\].-]*")


@dataclass(slots=True)
class _Track:
    name: str
    meaning: str
    line: int
    rank: int | None
    steps: list[float] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    stride: int = 1
    seen: int = 0
    last: tuple[float, int] | None = None

    def add(self, step: float | None, value: int) -> None:
        at = float(self.seen) if step is None else step
        if self.seen % self.stride == 0:
            self.steps.append(at)
            self.values.append(value)
            if len(self.values) > MOST_POINTS:
                self.steps, self.values = self.steps[::2], self.values[::2]
                self.stride *= 2
        self.last = (at, value)
        self.seen += 1


@dataclass(frozen=True, slots=True)
class _Point:
    """Where in lines of one shape a figure stands, and what it is."""

    index: int
    name: str
    skeleton: str
    meaning: str
    unit: str | None
    default: str | None


class SeriesBook:
    """Collects series while the input streams by; its size is bounded."""

    def __init__(self, source: int, rank: int | None) -> None:
        self.source, self.rank = source, rank
        self.tracks: dict[tuple[str, str, int | None], _Track] = {}
        self.header: list[str] = []
        self.plans: dict[str, tuple[int | None, tuple[_Point, ...]]] = {}
        self.full = False

    def see(self, figure: Figure) -> None:
        """Adds the points of one line."""
        text = figure.text[:4000].decode("utf-8", "replace")
        for line in clean_line(text, figure.line):
            self._line(line)

    def _line(self, line: Line) -> None:
        text = line.text
        if not text.strip() or self._table(line):
            return
        # "GPU 3" names something; other free-standing numbers are figures.
        text = _IDENTITY.sub(r"\1_\2", text)
        shape = _FREE.sub("#", text)
        plan = self.plans.get(shape)
        if plan is None:
            plan = _plan(text)
            if len(self.plans) < MOST_SHAPES:
                self.plans[shape] = plan
        if not plan[1]:
            return
        numbers = _FREE.findall(text)
        rank = line.rank if line.rank is not None else self.rank
        step = _step(numbers[plan[0]]) if plan[0] is not None else None
        for point in plan[1]:
            value = _bytes(numbers[point.index], point.unit, point.name, point.default)
            if value is not None:
                self._add(point.name, point.skeleton, point.meaning, rank, line.no, step, value)

    def _table(self, line: Line) -> bool:
        """A row of numbers under a header whose words speak of memory."""
        text = line.text
        if not self.header and any(c.isdigit() for c in text):
            return False
        cells = text.replace("|", " ").split()
        if self.header and len(cells) == len(self.header) and all(_NUMBER.fullmatch(c.rstrip("%")) for c in cells):
            first = _step(cells[0].rstrip("%"))
            rank = line.rank if line.rank is not None else self.rank
            for name, cell in zip(self.header, cells, strict=True):
                if _IN_NAME.search(name) and _MEMORY.search(name) and not cell.startswith(("+", "-")):
                    value = _bytes(cell, None, name, None)
                    if value is not None:
                        self._add(name, "table", meaning(name), rank, line.no, first, value)
            return True
        if len(_HEADER_WORD.findall(text)) < 2 or _DIGIT_WORD.search(text) or any(c in text for c in "=:{"):
            return False
        if _IN_NAME.search(text) and _MEMORY.search(text):
            self.header = cells
            return True
        return False

    def _add(
        self, name: str, skeleton: str, what: str, rank: int | None, line: int, step: float | None, value: int
    ) -> None:
        key = (name, skeleton, rank)
        track = self.tracks.get(key)
        if track is None:
            if len(self.tracks) >= MOST_SERIES:
                self.full = True
                return
            track = self.tracks[key] = _Track(name, what, line, rank)
        track.add(step, value)

    def finish(self, smi: list[SmiTable]) -> tuple[Series, ...]:
        """Series of two points or more, in order of their first point; repeated nvidia-smi tables are one as well."""
        for table in smi if len(smi) > 2 else ():
            for device in table.devices:
                self._add(f"nvidia-smi gpu {device.gpu}", "smi", "used", None, table.line, None, device.used)
        out = []
        for track in self.tracks.values():
            if len(track.values) < 2 and track.name not in ("MA", "CA", "Max_MA", "Max_CA"):
                continue
            steps, values = list(track.steps), list(track.values)
            if track.last is not None and track.stride > 1 and steps[-1] != track.last[0]:
                steps.append(track.last[0])
                values.append(track.last[1])
            if any(b <= a for a, b in itertools.pairwise(steps)):
                steps = [float(i * track.stride) for i in range(len(values))]
            out.append(
                Series(track.name, track.meaning, tuple(steps), tuple(values), track.line, self.source, track.rank)
            )
        return tuple(sorted(out, key=lambda s: (s.line, s.name)))


def meaning(name: str) -> str:
    """What a printed name stands for: allocated, reserved, used, peak, host or unknown."""
    low = name.lower()
    if re.search(r"max|peak|high", low):
        return "peak"
    if re.search(r"\brss|_rss|rss_|svmem|\bram\b|\bhost\b|\bcpu\b|virtual|available", low):
        return "host"
    if re.search(r"reserv|cach|\bca\b", low):
        return "reserved"
    if re.search(r"alloc|\bma\b|live", low):
        return "allocated"
    if re.search(r"used|mem|vram|footprint|drv", low):
        return "used"
    return "unknown"


def _short(name: str) -> str:
    return re.sub(r"\s+", " ", name)[-60:].strip()


def _plan(text: str) -> tuple[int | None, tuple[_Point, ...]]:
    """Which of a line's figures speak of memory; the same for every line of its shape."""
    if _NOT_A_SERIES.search(text):
        return None, ()
    at = {match.start(): index for index, match in enumerate(_FREE.finditer(text))}
    query = _QUERY.match(text)
    if query:
        if query.start("value") not in at:
            return None, ()
        gpu = query["gpu"] or "0"
        return None, (_Point(at[query.start("value")], f"memory.used gpu {gpu}", "nvidia-smi", "used", "MiB", None),)
    if not _MEMORY.search(text):
        return None, ()
    points: dict[int, _Point] = {}
    default = _default_unit(text)
    host = _HOST_LINE.search(text) is not None
    for pattern in (_PAIR, _SPACED, _REVERSED):
        end = 0
        for match in pattern.finditer(text):
            index = at.get(match.start("value"))
            start, stop = _name_before(text, end, match.start()) if pattern is _PAIR else match.span("name")
            if start == stop:
                continue
            end = match.end()
            # A name begins after the last number before it: "step 3 loss 0.1 mem alloc=..." is about "mem alloc".
            name = _FREE.split(text[start:stop])[-1].strip(" '\"-([,;|")
            if index is None or index in points or not _MEMORY.search(name):
                continue
            before = _FREE.sub("", text[max(0, start - 400) : start])[-160:]
            skeleton = before if pattern is _PAIR and len(before) < 80 else ""
            what = "host" if host else meaning(name)
            points[index] = _Point(index, _short(name), skeleton, what, match["unit"], default)
    step = _STEP.search(text)
    return (at.get(step.start(1)) if step else None), tuple(points.values())


def _name_before(text: str, first: int, end: int) -> tuple[int, int]:
    """Where the name before a separator begins and ends; the same place twice where there is none."""
    head = text[max(first, end - 80) : end].rstrip()
    stop = max(first, end - 80) + len(head)
    if head.endswith(("'", '"')):
        head, stop = head[:-1], stop - 1
    run = _NAME.match(head[::-1])
    length = run.end() if run else 0
    found = _NAME_START.search(text, stop - length, stop)
    return (found.start(), stop) if found else (stop, stop)


def _step(number: str) -> float | None:
    """A printed step; None for what no job counts up to."""
    step = float(number.replace(",", ""))
    return step if abs(step) < MOST_STEPS else None


def _default_unit(text: str) -> str | None:
    match = _DEFAULT_UNIT.search(text)
    return match[1] if match else None


def _bytes(number: str, unit: str | None, name: str, default: str | None) -> int | None:
    number = number.rstrip(",.")
    digits = number.replace(",", "") if _GROUPED.fullmatch(number) else number
    if not _PLAIN_NUMBER.fullmatch(digits):
        return None
    if "e" in digits.lower():
        try:
            digits = repr(int(float(digits)))
        except (ValueError, OverflowError):
            return None
    if not unit:
        inside = _IN_NAME.search(name)
        if inside:
            unit = inside[1] or inside[2]
            unit = "" if unit.lower() == "bytes" else unit[0]
        elif default:
            unit = default
        elif "." not in digits and int(digits) >= 1_000_000:
            unit = ""
        elif _MEGABYTES.fullmatch(name.strip()) and "." not in digits and 2 <= len(digits) <= 6:
            unit = "M"  # mmdetection and detectron print megabytes without saying so
        else:
            return None
    return read_size(digits + (" bytes" if unit.lower() == "bytes" else unit))
