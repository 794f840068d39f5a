"""What terminals, launchers, web pages and chat windows do to a log changes none of its figures."""

from __future__ import annotations

import html
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oomctl.sources.text import read_text
from oomctl.sources.text.normalise import clean
from tests.text.logs import NAMES, figures, raw

SINGLE = [name for name in NAMES if "wrapped" not in name]
"""Logs whose own damage leaves room for more: one already wrapped inside a prefix cannot take another prefix."""
UNLABELLED = [name for name in SINGLE if not any(line.tag for line in clean(raw(name).split(b"\n"), 1))]
"""Logs without workers' names in them."""


def text(name: str) -> str:
    data = raw(name)
    decoded = data.decode("utf-16") if data[:2] in (b"\xff\xfe", b"\xfe\xff") else data.decode()
    return decoded.replace("\r\n", "\n").rstrip("\n")


def wrap(lines: str, width: int) -> str:
    return "\n".join(line[i : i + width] for line in lines.split("\n") for i in range(0, max(len(line), 1), width))


def prefix(label: str) -> Callable[[str], str]:
    return lambda lines: "\n".join(label + line for line in lines.split("\n"))


PREFIXES = (
    "[rank3]: ",
    "(Worker pid=77, ip=10.1.2.3) ",
    "[1,3]<stderr>:",
    "3: ",
    "[pod/job-worker-3/main] ",
    "2024-05-05 10:11:12,123 - ERROR - ",
    "2024-05-05T10:11:12.123Z ",
    "2024-05-05 10:11:12 | ERROR | my.module | ",
    "(EngineCore_0 pid=1) ERROR 05-05 10:11:12 [core.py:12] ",
    "trainer_1  | ",
    "> ",
    "> > ",
    "# ",
    "      ",
)
DAMAGE: dict[str, Callable[[str], str | bytes]] = {
    "crlf": lambda t: t.replace("\n", "\r\n"),
    "colour": lambda t: "\n".join(f"\x1b[31m{line}\x1b[0m" for line in t.split("\n")),
    "colour written out": lambda t: "\n".join(f"#033[31m{line}#033[0m" for line in t.split("\n")),
    "fence": lambda t: f"```\n{t}\n```",
    "html": lambda t: html.escape(t).replace("\n", "<br>\n"),
    "json": lambda t: json.dumps({"level": "error", "message": t}),
    "utf-16": lambda t: t.encode("utf-16"),
    "no-break spaces": lambda t: t.replace(" ", "\u00a0"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_whole_text_damage(damage: str) -> None:
    for name in NAMES[list(DAMAGE).index(damage) % 3 :: 3]:
        t = text(name)
        damaged = DAMAGE[damage](t)
        assert figures(damaged if isinstance(damaged, bytes) else damaged.encode()) == figures(t.encode()), name


@pytest.mark.parametrize("label", PREFIXES)
def test_a_prefix_on_every_line(label: str) -> None:
    for name in SINGLE[PREFIXES.index(label) % 4 :: 4]:
        t = text(name)
        assert figures(prefix(label)(t).encode()) == figures(t.encode()), name


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(NAMES), st.integers(50, 200))
def test_wrapping_at_any_width(name: str, width: int) -> None:
    t = text(name)
    assert figures(wrap(t, width).encode()) == figures(t.encode())


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(UNLABELLED),
    st.sampled_from(PREFIXES),
    st.integers(50, 160),
    st.booleans(),
    st.booleans(),
)
def test_wrapped_then_prefixed_coloured_and_quoted(
    name: str, label: str, width: int, coloured: bool, quoted: bool
) -> None:
    t = text(name)
    damaged = prefix(label)(wrap(t, width))
    if coloured:
        damaged = str(DAMAGE["colour"](damaged))
    if quoted:
        damaged = prefix("> ")(damaged).replace("\n", "\r\n")
    assert figures(damaged.encode()) == figures(t.encode())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.lists(st.integers(1, 2000), max_size=12))
def test_chunks_cut_anywhere(name: str, cuts: list[int]) -> None:
    data = raw(name)
    chunks, start = [], 0
    for cut in sorted(cuts):
        chunks.append(data[start:cut])
        start = max(start, cut)
    chunks.append(data[start:])
    assert read_text(chunks) == read_text([data])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=3000))
def test_any_bytes_are_read_without_complaint(data: bytes) -> None:
    read_text([data])


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(NAMES), st.data())
def test_cut_and_overwritten_logs_are_read_without_complaint(name: str, data: st.DataObject) -> None:
    content = bytearray(raw(name))
    for _ in range(data.draw(st.integers(0, 8))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at] = data.draw(st.integers(0, 255))
    read_text([bytes(content[: data.draw(st.integers(0, len(content)))])])
