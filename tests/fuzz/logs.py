"""Mutated logs: damaged bytes, impossible figures, hostile names, and what pasting does."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from tests.fuzz import seeds, snapshots
from tests.fuzz.names import NAMES
from tests.sources import convert

NUMBERS = (
    "0", "-1", "1", "0.00", "999999999999999999999", "1e308", "1e999", "nan", "inf", "18446744073709551615", "1,5",
    "0x1p3", "9" * 5000, "1.2.3", "٣", "1_000", "", "-0.0", "4.70 GiB", "17179869184.00",
)  # fmt: skip
UNITS = ("GiB", "MiB", "KiB", "bytes", "GB", "TiB", "EiB", "XiB", "", "B", "mb")
_NUMBER = re.compile(rb"\d+(?:\.\d+)?")
_UNIT = re.compile(rb"\b[KMGT]i?B\b|\bbytes\b")
_WORD = re.compile(rb"[A-Za-z_/.]{4,}")


def mutated(rng: random.Random) -> bytes:
    """One log that something happened to."""
    data = rng.choice(seeds.logs())
    for _ in range(1 + int(rng.expovariate(0.5))):
        data = rng.choice(CHANGES)(rng, data)[: 3 << 20]
    if rng.random() < 0.04:
        data = rng.choice(list(convert.COMPRESSIONS.values()))(data)
        return snapshots.hit(rng, data) if rng.random() < 0.5 else data
    return data


def _some(rng: random.Random, pattern: re.Pattern[bytes], data: bytes, values: tuple[str, ...]) -> bytes:
    """A few matches, or one in three of them, replaced."""
    share = rng.choice((0.05, 0.3, 1.0))
    value = rng.choice(values).encode("utf-8", "surrogatepass") if rng.random() < 0.5 else None

    def other(match: re.Match[bytes]) -> bytes:
        if rng.random() > share:
            return match[0]
        return rng.choice(values).encode("utf-8", "surrogatepass") if value is None else value

    return pattern.sub(other, data[: 1 << 18])


def _lines(rng: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at, count = rng.randrange(len(lines)), rng.choice((1, 5, 50))
    way = rng.randrange(6)
    if way == 0:
        rng.shuffle(lines)
    elif way == 1:
        del lines[at : at + count]
    elif way == 2:
        lines[at:at] = lines[at : at + count]
    elif way == 3:
        lines.reverse()
    elif way == 4:
        lines[at] = lines[at] * rng.choice((2, 100, 5000))
    else:
        lines[at:at] = rng.choice(seeds.logs()).split(b"\n")[:count]
    return b"\n".join(lines)


def _splice(rng: random.Random, data: bytes) -> bytes:
    other = rng.choice(seeds.logs())
    return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]


def _repeat(rng: random.Random, data: bytes) -> bytes:
    return data * rng.choice((2, 10, 200)) if len(data) < 20_000 else data * 2


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    piece = rng.choice(
        (b"\0", b"\x1b[31m", b"\r", b"\xff\xfe", b"\xe2\x80\xae", b" " * 9999, b"(" * 5000, b"[" * 5000, b"x" * 200_000,
         b"\\n", b"&lt;br&gt;", b"|" * 3000, b"\n" * 3000, b"0" * 9000, b"CUDA out of memory. Tried to allocate ",
         b"\"" * 500, b"{" * 3000, b"/" * 9000, b"  File \"", b"GiB " * 3000, b"1.00 GiB " * 3000)
    )  # fmt: skip
    return data[:at] + piece + data[at:]


def _names(rng: random.Random, data: bytes) -> bytes:
    return _some(rng, _WORD, data, NAMES)


def _wrap(rng: random.Random, data: bytes) -> bytes:
    width = rng.choice((1, 7, 40, 80, 500))
    data = data[: 1 << 16]
    return b"\n".join(data[i : i + width] for i in range(0, len(data), width))


def _prefix(rng: random.Random, data: bytes) -> bytes:
    label = rng.choice((b"[rank3]: ", b"3: ", b"> ", b"| ", b"\x1b[36m(pid=7)\x1b[0m ", b"[1,99999999999]<stderr>:"))
    return b"\n".join(label + line for line in data.split(b"\n"))


def _encode(rng: random.Random, data: bytes) -> bytes:
    text = data.decode("utf-8", "replace")
    way = rng.choice(("utf-16", "utf-16-le", "utf-8-sig", "latin-1", "cp1252", "json", "repr", "utf-32"))
    if way == "json":
        import json

        return json.dumps({"message": text, "x": [text[:100]]}).encode()
    return repr(text).encode() if way == "repr" else text.encode(way, "replace")


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[rng.randrange(len(data) + 1) :] if rng.random() < 0.3 else data[: rng.randrange(len(data) + 1)]


CHANGES: tuple[Callable[[random.Random, bytes], bytes], ...] = (
    lambda rng, data: _some(rng, _NUMBER, data, NUMBERS),
    lambda rng, data: _some(rng, _NUMBER, data, NUMBERS),
    lambda rng, data: _some(rng, _UNIT, data, UNITS),
    lambda rng, data: snapshots.hit(rng, data or b"x"),
    _lines, _lines, _splice, _repeat, _insert, _insert, _names, _wrap, _prefix, _encode, _cut,
)  # fmt: skip
