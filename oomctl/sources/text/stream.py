"""Bytes of any length become a few stretches of lines worth reading; the rest is passed over at memory speed.

Plain text is only searched for a handful of byte strings, 64 KiB at a time. A stretch is opened around lines that look
like a failure, a table, a traceback or a counter, with enough lines before it for a traceback and after it for a table.
Lines that merely print a memory figure are handed over one by one, so that a log that prints one every step stays
cheap.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

BLOCK: Final = 1 << 16
BEFORE: Final = 120
"""Lines of context before a hit: a deep traceback."""
AFTER: Final = 60
"""Lines of context after a hit: a whole memory_summary table takes 40."""
STRETCH: Final = 1500
"""Lines after which a stretch is cut, so that memory stays bounded however many lines hit."""
LONGEST_LINE: Final = 1 << 20
"""Bytes of one line that are kept; a log on a single longer line is read in pieces of this size."""

# Each text that matters holds several of these, so that a hard wrap does not hide it. Every one costs about a
# nanosecond a byte, hence so few: "rror" stands for all tracebacks and library errors.
_NEEDLES: Final = (b"emory", b"mem", b"_OF_MEM", b"lloc", b"ALLOC", b"illed", b"KILL", b"rror", b"rss")
_UNITS: Final = (b"iB", b"GB", b"MB")
_FULL_WIDTH: Final = b"\xef\xbd"
"""Start of the full-width Latin letters in UTF-8."""
_NO_BREAK: Final = "\u00a0".encode()

_HIT: Final = re.compile(
    rb"out[ _]?of[ _]?mem|oom|out ?of ?resource|tried to|to allocate|allocate |allocator|calloc|bad_alloc|"
    rb"alloc_(?:failed|conf|retries)|"
    rb"[kmgt]i?b total|capac[i]?ty|already alloc|by pytorch|reserved (?:in|by|mem|seg)|private pool|memory in use|"
    rb"memory summ|cudamalloc|large pool|small pool|(?:allocated|active|requested) mem|allocations|allocs|traceback|"
    rb"error|exhausted|kill|cublas|cudnn|nccl warn|nvml|allocation on|currently alloc|device limit|"
    rb"all\.(?:current|peak|alloc|freed)|nvidia-smi|mib ?/|mib +\||insufficient|not enough|memory-usage|cache block|"
    rb"releasable|file \"|num_ooms|\xef\xbd|pinned|anon-rss|core dumped|exit ?code|code 137|"
    rb"exited |torch version|torch==|bfc_?arena|requested buf",
    re.IGNORECASE,
)
_FIGURE: Final = re.compile(rb"mem|alloc|reserved|rss|vram|\bMA\b|\bCA\b|[KMGT]i?B\b", re.IGNORECASE)
_NUMERIC_ROW: Final = re.compile(rb"[\s\d.,+\-eE|%:/\[\]()]{8,}$")


@dataclass(slots=True)
class Stretch:
    """Consecutive lines of the input.

    Attributes:
        first: 1-based number of the first line.
        lines: Raw lines without their ends.
        accept_from: Findings that start before this line were reported with an earlier stretch.
        accept_to: Findings that start at or after this line will be reported with the next one.
    """

    first: int
    lines: list[bytes] = field(default_factory=list)
    accept_from: int = 0
    accept_to: int | None = None

    def accepts(self, line: int) -> bool:
        """Whether a finding that starts at this line belongs to this stretch."""
        return line >= self.accept_from and (self.accept_to is None or line < self.accept_to)


@dataclass(slots=True)
class Figure:
    """A single line outside of any stretch that may print a figure."""

    line: int
    text: bytes


def _utf8(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same text as UTF-8: UTF-16 (with or without a mark, as PowerShell writes it) and UTF-32 are turned over."""
    iterator = iter(chunks)
    head = b""
    for chunk in iterator:
        head += chunk
        if len(head) >= 64:
            break
    encoding = _encoding(head)
    if encoding is None:
        yield head[3:] if head.startswith(codecs.BOM_UTF8) else head
        yield from iterator
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(head).lstrip("\ufeff").encode("utf-8", "replace")
    for chunk in iterator:
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", True).encode("utf-8", "replace")


def _encoding(head: bytes) -> str | None:
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = head[:256]
    if len(sample) >= 8:
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        half = len(sample) // 2
        if odd > half * 0.6 and even < half * 0.1:
            return "utf-16-le"
        if even > half * 0.6 and odd < half * 0.1:
            return "utf-16-be"
    return None


def _blocks(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Pieces of whole lines, about `BLOCK` bytes each; a line longer than `LONGEST_LINE` is cut."""
    rest = b""
    for chunk in _utf8(chunks):
        data = rest + chunk if rest else chunk
        start = 0
        while len(data) - start >= BLOCK:
            end = data.rfind(b"\n", start, start + BLOCK)
            if end < 0:
                end = data.find(b"\n", start + BLOCK, start + LONGEST_LINE)
                if end < 0:
                    if len(data) - start < LONGEST_LINE:
                        break
                    end = start + LONGEST_LINE - 1
            yield data[start : end + 1]
            start = end + 1
        rest = data[start:]
    if rest:
        yield rest


def _promising(block: bytes) -> bool:
    """Whether a block may hold anything; a block without a capital B cannot hold a unit."""
    return (
        any(needle in block for needle in _NEEDLES)
        or (b"B" in block and any(unit in block for unit in _UNITS))
        or (b"xit" in block and (b"137" in block or b"-9" in block))  # exit codes of a killed process
        or (not block.isascii() and _FULL_WIDTH in block)
    )


class _Window:
    """The stretch that is open, and the lines before it that may be needed."""

    def __init__(self) -> None:
        self.stretch: Stretch | None = None
        self.left = 0
        self.done_to = 0

    def open(self, line: int, before: list[bytes]) -> None:
        before = before[-BEFORE:]
        first = line - len(before)
        self.stretch = Stretch(first, list(before), accept_from=self.done_to)

    def cut(self, line: int) -> Stretch:
        """Ends the stretch after `line` lines and starts the next with some overlap on both sides."""
        assert self.stretch is not None
        full = self.stretch
        border = line - AFTER
        full.accept_to = border
        keep = full.lines[-(AFTER + BEFORE) :]
        self.stretch = Stretch(line - len(keep), list(keep), accept_from=border)
        self.done_to = border
        return full

    def close(self, line: int) -> Stretch:
        assert self.stretch is not None
        full, self.stretch = self.stretch, None
        self.done_to = line
        return full


def stretches(chunks: Iterable[bytes]) -> Iterator[Stretch | Figure]:
    """Splits the input into what is worth reading.

    Args:
        chunks: The bytes of the input, cut anywhere.

    Yields:
        Stretches in order, and single lines that may print a figure. Their sum is bounded by what looks interesting;
        one stretch never holds more than `STRETCH` lines.
    """
    window = _Window()
    line = 1
    previous: bytes = b""
    header_left = 0
    for block in _blocks(chunks):
        if not _promising(block):
            if window.stretch is not None:
                taken = block.split(b"\n", window.left)[: window.left]
                window.stretch.lines.extend(taken)
                window.left -= len(taken)
                if window.left <= 0:
                    yield window.close(line + len(taken))
            line += block.count(b"\n")
            previous = block
            continue
        if not block.isascii():
            block = block.replace(_NO_BREAK, b" ")  # noqa: PLW2901
        lines = block.split(b"\n")
        if lines and not lines[-1]:
            lines.pop()
        for index, text in enumerate(lines):
            hit = _HIT.search(text) is not None
            if hit:
                if window.stretch is None:
                    before = lines[max(0, index - BEFORE) : index]
                    if len(before) < BEFORE and previous:
                        tail = previous[-(BEFORE * 400) :].split(b"\n")[:-1]
                        before = tail[-(BEFORE - len(before)) :] + before
                    window.open(line, before[-max(0, min(len(before), line - 1)) :] if line > 1 else [])
                window.left = AFTER
            if window.stretch is not None:
                window.stretch.lines.append(text)
                window.left -= 0 if hit else 1
                if window.left <= 0:
                    yield window.close(line + 1)
                elif len(window.stretch.lines) >= STRETCH:
                    yield window.cut(line + 1)
            if _FIGURE.search(text) is not None:
                header_left = 200
                yield Figure(line, text)
            elif header_left and _NUMERIC_ROW.match(text):
                yield Figure(line, text)
            else:
                header_left = max(0, header_left - 1)
            line += 1
        previous = block
    if window.stretch is not None:
        yield window.close(line)
