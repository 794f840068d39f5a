"""Memory figures that a program prints again and again.

A general detector: every "name value unit" on a line whose name speaks of memory becomes a point of the series that the
same words, with their digits masked, belong to. It knows the layouts of DeepSpeed (MA, Max_MA, CA), Megatron,
torchtitan, mmdetection, psutil, nvidia-smi loops, `key=value` prints and tables under a header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from oomctl.model.log import Series, SmiTable
from oomctl.sources.text.normalise import Line, clean_line
from oomctl.sources.text.stream import Figure
from oomctl.units import parse_size

MOST_SERIES: Final = 256
MOST_POINTS: Final = 4096
"""Points of one series that are kept; beyond that every second one is dropped."""

_MEMORY: Final = re.compile(
    r"alloc|reserv|cach|mem(?!ber)|\brss|_rss|rss_|vram|\bMA\b|Max_MA|\bCA\b|Max_CA|svmem|\bused\b|\bgpu_?mb|\bram\b|live_(?:mb|bytes)|footprint|drv\b",
    re.I,
)
_UNIT: Final = r"(?:[KMGT]i?B|[KMGT]|bytes|B)"
_PAIR: Final = re.compile(
    r"(?P<name>[A-Za-z_\u0394][\w ./()%\[\]-]{0,60}?)['\"]?\s*(?:[:=]|->|\bis\b)\s*['\"]?"
    rf"(?P<value>\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(?P<unit>{_UNIT})?(?P<next>[\w%.]?)"
)
_SPACED: Final = re.compile(
    r"\b(?P<name>(?:[Mm]ax_|[Pp]eak[ _])?(?:MA|CA|alloc(?:ated)?|reserved|cached|peak|memory|mem|rss|vram))\s+"
    rf"(?P<value>\d[\d,]*(?:\.\d+)?)\s*(?P<unit>[KMGT]i?B|bytes)(?P<next>[\w%]?)",
    re.IGNORECASE,
)
_REVERSED: Final = re.compile(
    r"(?P<value>\d[\d,]*(?:\.\d+)?)\s*(?P<unit>[KMGT]i?B|bytes)\s+(?P<name>(?:currently )?(?:allocated|reserved|cached|used))\b(?P<next>)",
    re.I,
)
_QUERY: Final = re.compile(r"^\s*(?:(?P<gpu>\d{1,2}),\s*(?:[A-Z][\w -]+,\s*)?)?(?P<value>\d+) MiB(?:,|\s*$)")
_NOT_A_SERIES: Final = re.compile(
    r"Tried to alloc|total capac|allocated by PyTorch|other allocations|memory in use|from (?:large|small) pool|Usage|"
    r"(?:Allocated|Active|Requested|reserved|releasable) memory +\||OOMs|virtual|pages|total-vm|DefaultCPU|\.(?:current|peak|freed)\b"
)
_STEP: Final = re.compile(
    r"\b(?:global_?step|steps?|iter(?:ation)?s?|it|batch|update|call|trial|epoch|round|i)\b['\"]?\s*[:=#\[]?\s*(\d{1,10}(?:\.\d+)?)\b",
    re.I,
)
_IN_NAME: Final = re.compile(r"(?<![A-Za-z])([KMGT])i?B(?![A-Za-z])|_(kb|mb|gb|kib|mib|gib|bytes)(?![a-z])", re.I)
_NUMBER: Final = re.compile(r"[+-]?\d[\d,]*(?:\.\d+)?")
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


class SeriesBook:
    """Collects series while the input streams by; its size is bounded."""

    def __init__(self, source: int, rank: int | None) -> None:
        self.source, self.rank = source, rank
        self.tracks: dict[tuple[str, str, int | None], _Track] = {}
        self.header: list[str] = []
        self.full = False

    def see(self, figure: Figure) -> None:
        """Adds the points of one line."""
        text = figure.text[:4000].decode("utf-8", "replace")
        for line in clean_line(text, figure.line):
            self._line(line)

    def _line(self, line: Line) -> None:
        text = line.text
        if not text.strip() or _NOT_A_SERIES.search(text):
            return
        if self._table(line):
            return
        rank = line.rank if line.rank is not None else self.rank
        step = _step(text)
        query = _QUERY.match(text)
        if query:
            gpu = query["gpu"] or "0"
            self._add(f"memory.used gpu {gpu}", "nvidia-smi", "used", rank, line.no, None, int(query["value"]) << 20)
            return
        if not _MEMORY.search(text):
            return
        taken: set[int] = set()
        default = _default_unit(text)
        for pattern in (_PAIR, _SPACED, _REVERSED):
            for match in pattern.finditer(text):
                if match.start("value") in taken:
                    continue
                name = match["name"].strip(" '\"-([")
                if match["next"] not in ("", ".") or not name:
                    continue
                context = name if _MEMORY.search(name) else ""
                if not context:
                    continue
                value = _bytes(match["value"], match["unit"], name, default)
                if value is None:
                    continue
                taken.add(match.start("value"))
                before = re.sub(r"\d+(?:\.\d+)?", "#", text[: match.start("name")])[-160:]
                skeleton = before if pattern is _PAIR and len(before) < 80 else ""
                what = "host" if re.search(r"svmem|virtual_memory|\bRSS\b", text) else meaning(name)
                self._add(_short(name), re.sub(r"#", "", skeleton), what, rank, line.no, step, value)

    def _table(self, line: Line) -> bool:
        """A row of numbers under a header whose words speak of memory."""
        text = line.text
        words = _HEADER_WORD.findall(text)
        if len(words) >= 2 and not re.search(r"(?<![\w(])\d", text) and not re.search(r"[=:{]", text):
            if _IN_NAME.search(text) and _MEMORY.search(text):
                self.header = text.replace("|", " ").split()
                return True
            return False
        cells = [c for c in text.replace("|", " ").split() if c]
        if self.header and len(cells) == len(self.header) and all(_NUMBER.fullmatch(c.rstrip("%")) for c in cells):
            first = float(cells[0].replace(",", "").rstrip("%"))
            rank = line.rank if line.rank is not None else self.rank
            for name, cell in zip(self.header, cells, strict=True):
                if _IN_NAME.search(name) and _MEMORY.search(name) and not cell.startswith(("+", "-")):
                    value = _bytes(cell, None, name, None)
                    if value is not None:
                        self._add(name, "table", meaning(name), rank, line.no, first, value)
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
            if any(b <= a for a, b in zip(steps, steps[1:], strict=False)):
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


def _step(text: str) -> float | None:
    match = _STEP.search(text)
    return float(match[1]) if match else None


def _default_unit(text: str) -> str | None:
    match = re.search(r"[(\[]([KMGT]i?B|bytes)[)\]]", text, re.I)
    return match[1] if match else None


def _bytes(number: str, unit: str | None, name: str, default: str | None) -> int | None:
    number = number.rstrip(",.")
    digits = number.replace(",", "") if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", number) else number
    if not re.fullmatch(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", digits):
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
        elif re.fullmatch(r"(?:max[_ ])?mem(?:ory)?", name.strip(), re.I) and re.fullmatch(r"\d{2,6}", digits):
            unit = "M"  # mmdetection and detectron print megabytes without saying so
        else:
            return None
    try:
        return parse_size(digits + (" bytes" if unit.lower() == "bytes" else unit))
    except ValueError:
        return None
