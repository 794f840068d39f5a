"""Un-mangling: what terminals, loggers, launchers, web pages and chat windows did to a log is undone line by line.

Nothing here looks for a failure. A raw line becomes one or more clean lines, each with the worker that printed it, its
time where it has one, and its text without escapes, quoting and prefixes.
"""

from __future__ import annotations

import html
import json
import re
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final

JSON_TEXTS: Final = ("log", "message", "msg", "text", "event", "textPayload", "line", "body", "error", "content")
JSON_TRACES: Final = ("exception", "exc_info", "exc_text", "stack_trace", "stack", "traceback", "stacktrace")
JSON_RANKS: Final = ("rank", "global_rank", "RANK", "worker_rank", "local_rank")
LONGEST_TEXT: Final = 200_000
"""Characters of one clean line that are read; longer ones are cut."""

# Full-width forms, no-break and typographic spaces, zero-width marks, soft hyphens.
_CHARACTERS: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
_CHARACTERS.update(dict.fromkeys((0xA0, 0x2000, 0x2002, 0x2003, 0x2007, 0x2008, 0x2009, 0x200A, 0x202F, 0x3000), 0x20))
_ZERO_WIDTH: Final = dict.fromkeys((0x200B, 0x200C, 0x200D, 0x2060, 0xFEFF, 0xAD, 0x00))
_TABLE: Final[dict[int, int | None]] = {**_CHARACTERS, **_ZERO_WIDTH}

_ESCAPE: Final = r"(?:\x1b|\^\[|#033|\\x1[bB]|\\u001[bB]|\\033|\\e|\u241b)"
_ANSI: Final = re.compile(
    rf"{_ESCAPE}(?:\[[0-9;?]*[ -/]?[A-Za-z]|\][^\x07]{{0,200}}(?:\x07|{_ESCAPE}\\)|[()][A-Z0-9]|[=>78DEHM])"
    r"|(?<![A-Za-z0-9])\[(?:0|1|2|3|4|22|39|49|[34]\d|9[0-7]|[01];\d{2}|\d{2};\d{1,2}|38;5;\d{1,3})m"
)
_ANSI_CUT: Final = re.compile(rf"{_ESCAPE}(?:\[[0-9;?]{{0,12}})?$")
_TAGS: Final = re.compile(
    r"</?(?:p|pre|code|span|div|b|i|em|strong|samp|tt|font|a|td|tr|li|blockquote)(?:\s[^<>]{0,200})?/?>", re.I
)
_BREAK: Final = re.compile(r"<br\s*/?>", re.I)
_ESCAPED: Final = re.compile(
    # Bounded everywhere: a line of nothing but backslashes would otherwise be looked through once for each of them.
    r"(?P<path>\b[A-Za-z]:\\[^\s\"'<>|]*|(?:\\\\?[\w+-]{1,80}){2,30}\.\w+)"
    r"|(?P<new>(?:\\{1,2}r)?\\{1,2}n)|(?P<tab>\\{1,2}t)|\\{1,16}(?P<quote>[\"'])"
)
_ONE_LINER: Final = re.compile(r"\\n[ \"'|A-Z\\\[(>#\d-]|\\n$|\\n\.|\\n[a-z]+[. ]")

_STAMP: Final = (
    r"\[?(?:\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?"
    r"|\d\d[-/]\d\d(?:[-/]\d{2,4})?[ T]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:\s?[AP]M)?"
    r"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)?,? ?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\s+\d{1,2}"
    r" \d\d:\d\d:\d\d(?: \d{4})?"
    r"|\d\d:\d\d:\d\d(?:[.,]\d+)?|\s*\d{1,7}\.\d{6})\]?"
)
_LEVEL: Final = (
    r"\[?(?:DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|SEVERE|STDERR|STDOUT|stderr|stdout|error|info|warning)\]?"
)
_PREFIXES: Final = tuple(
    (starts, re.compile(pattern))
    for starts, pattern in (
        (">", r"(?P<quote>(?:>(?!>>)[ \t]?)+)"),
        ("\u2502\u2503\u2551\u258f\u258c", r"(?P<box>[\u2502\u2503\u2551\u258f\u258c] ?)"),
        ("#", r"(?P<comment>#{1,6}(?:[ \t]|$|(?=\|)))"),
        ("[0123456789JFMASONDTW", rf"(?P<stamp>{_STAMP})(?:[ \t]|(?=\[)|$)"),
        (
            "|-:",
            rf"(?P<joint>[|:-]{{1,2}})[ \t](?={_LEVEL}(?:[ :|\-\]]|$)|(?:[a-z_]\w*\.)+[a-z_]\w* [|-] |[a-z_]\w* - )",
        ),
        ("[Rr", r"\[?(?P<rank1>[Rr]ank[ :=_]?(?P<r1>\d{1,5}))\b\]?(?:[:>]| \|)? ?"),
        (
            "[",
            r"\[(?P<tag1>(?:default|trainer|worker|node|gpu|GPU|proc|local_rank|LOCAL_RANK|dp|DP)[-_ :=]?"
            r"(?P<r2>\d{1,5}))\]:? ?",
        ),
        ("[", r"\[(?P<tag2>\d{1,4},(?P<r3>\d{1,5}))\]<std(?:err|out)>:? ?"),
        (
            "(",
            r"\((?P<tag3>[A-Za-z_][\w.:<>-]*(?:[ _](?:rank=(?P<r4>\d{1,5})|[\w.=:-]+))*,? ?pid=\d+(?:, ?ip=[\w.:-]+)?"
            r"[^()]{0,80})\) ?",
        ),
        (
            "(",
            r"\((?P<tag4>raylet|autoscaler|gcs_server|"
            r"[A-Za-z_]*(?:Worker|Actor|Runner|Trainer|Engine|Proc)\w*[^()]{0,60})\) ?",
        ),
        ("0123456789", r"(?P<tag5>(?P<r5>\d{1,4})):(?: |$|(?=[^\d\s]))"),
        ("[", r"\[(?P<tag6>pod/[\w./-]+|[\w.-]+-(?:worker|master|launcher|node)-?\d*(?:/[\w.-]+)?)\] ?"),
        (
            "abcdefghijklmnopqrstuvwxyz0123456789",
            r"(?P<tag7>(?:pod/)?[a-z0-9][a-z0-9.-]{0,60}?(?:worker|master|launcher|node|pod|rank|train|replica|gpu|job|host)"
            r"[a-z0-9.-]{0,60}-(?P<r7>\d{1,4})(?:[/ ][\w.-]+)?)(?:: ?| +\| | (?=[A-Z\[ ]))",
        ),
        ("abcdefghijklmnopqrstuvwxyz_", r"(?P<logger>(?:[a-z_]\w*\.)+[a-z_]\w*) (?:\||-|::) "),
        ("", r"(?P<tag8>[A-Za-z][\w.-]*\d) +\|(?: |$)"),
        ("[DIWECFSeiws", rf"(?P<level>{_LEVEL})(?:[ \t]*[:|-](?:[ \t]|$)|[ \t]+|:|$)"),
        ("[WIEFD", r"(?P<glog>\[?[WIEFD]\d{3,4} \d\d:\d\d:\d\d\.\d+(?: +\d+)? [\w./-]+:\d+\])[ \t]?"),
        (
            "",
            r"(?P<source>\[?[\w./-]{1,200}\.(?:py|cpp|cc|cu|c|h):\d{1,6}(?::\w+)?\])[ \t]?",
        ),
        ("E", r"(?P<e>E {2,})(?=\S)"),
    )
)
"""Kinds of prefixes with the characters that they start with ("" is any), tried in this order."""
_BY_START: dict[str, tuple[re.Pattern[str], ...]] = {}


def _prefixes(character: str) -> tuple[re.Pattern[str], ...]:
    """The prefixes that can start with this character."""
    known = _BY_START.get(character)
    if known is None:
        known = tuple(pattern for starts, pattern in _PREFIXES if not starts or character in starts)
        if len(_BY_START) < 512:
            _BY_START[character] = known
    return known


_RANK_ANYWHERE: Final = re.compile(r"\[[Rr]ank[ :=_]?(\d{1,5})\]|\brank[ =:](\d{1,5})\b")
TAG_JOINT: Final = " / "
"""Between the names of nested workers (a pod's and the rank's in it)."""
_SPACE: Final = re.compile(r"[ \t]*")
_FENCE: Final = re.compile(r"\s*(?:```|~~~)\s*[\w+-]*\s*$")
_TMUX: Final = re.compile(r"\s*\[\d{1,7}/\d{1,7}\]\s*$")


@dataclass(slots=True)
class Line:
    """A clean line.

    Attributes:
        no: 1-based number of the physical line that it comes from.
        text: Without escapes, quoting and prefixes; the indentation after a prefix is kept.
        full: As `text`, with the prefixes.
        tag: What named the worker that printed it, "" if nothing did.
        rank: The worker's rank, where the prefix says so.
        time: Seconds since the epoch (of the clock that printed it), or None.
        part: Which of the clean lines of its physical line it is.
    """

    no: int
    text: str
    full: str
    tag: str = ""
    rank: int | None = None
    time: float | None = None
    part: int = 0


def clean(raw: list[bytes], first: int) -> list[Line]:
    """Clean lines of consecutive raw lines.

    Args:
        raw: Lines without their ends.
        first: 1-based number of the first.
    """
    out: list[Line] = []
    carry = ""
    for offset, data in enumerate(raw):
        text = carry + data.decode("utf-8", "replace")[:LONGEST_TEXT]
        carry = ""
        if "\x1b" in text or "^[" in text or "#033" in text:
            text = text.rstrip("\r")
            cut = _ANSI_CUT.search(text)
            if cut:
                carry = cut[0]
                text = text[: cut.start()]
        out.extend(clean_line(text, first + offset))
    return out


def clean_line(text: str, no: int) -> list[Line]:
    """Clean lines of one physical line: a one-line paste, a JSON record or a progress bar hold several."""
    text = text.rstrip("\r")
    if not text.isascii():
        text = text.translate(_TABLE)
    text = _ANSI.sub("", text)
    parts, rank = _unpack(text)
    out: list[Line] = []
    for part in parts:
        for piece in re.split(r"[\r\n\x0b\x0c\u2028]", part):
            line = _strip(piece.expandtabs(4) if "\t" in piece else piece, no)
            line.part = len(out)
            if rank is not None and line.rank is None:
                line.rank, line.tag = rank, line.tag or f"rank {rank}"
            out.append(line)
    return out


def _unpack(text: str) -> tuple[list[str], int | None]:
    """The texts inside one line, and the rank that a JSON record names."""
    if "{" in text and '"' in text:
        record = _json(text)
        if record is not None:
            return record
    if "<" in text and ">" in text:
        text = _TAGS.sub("", _BREAK.sub("\n", text))
    if "&" in text and ";" in text:
        text = html.unescape(text).translate(_TABLE)
    if "\\" in text:
        text = unescape(text)
    return [text], None


def unescape(text: str) -> str:
    """Written-out line ends and escaped quotes of a repr or a JSON string become real ones; Windows paths stay."""
    one_liner = _ONE_LINER.search(text) is not None

    def replace(match: re.Match[str]) -> str:
        if match["path"]:
            return match[0]
        if match["new"]:
            return "\n" if one_liner else match[0]
        if match["tab"]:
            return "    " if one_liner else match[0]
        return match["quote"]

    return _ESCAPED.sub(replace, text)


def _json(text: str) -> tuple[list[str], int | None] | None:
    start = text.find("{")
    head = text[:start]
    if len(head) > 200 or not text.rstrip().endswith("}"):
        return None
    try:
        record = json.loads(text[start:])
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    texts: list[str] = []
    ranks: list[int] = []

    def walk(node: dict[str, object], depth: int) -> None:
        for key in JSON_RANKS:
            value = node.get(key)
            if isinstance(value, int) and not isinstance(value, bool):
                ranks.append(value)
        for key in (*JSON_TEXTS, *JSON_TRACES):
            value = node.get(key)
            if isinstance(value, str) and value.strip():
                texts.append(value)
            elif isinstance(value, list) and value and all(isinstance(v, str) for v in value):
                texts.append("\n".join(str(v) for v in value))
        if depth < 3:
            for value in node.values():
                if isinstance(value, dict):
                    walk(value, depth + 1)

    walk(record, 0)
    if not texts:
        return None
    plain = [_ANSI.sub("", value.translate(_TABLE)) for value in texts]
    out = [unescape(value) if "\n" not in value and "\\" in value else value for value in plain]
    return out, ranks[0] if ranks else None


def _strip(text: str, no: int) -> Line:
    """Takes quoting, time, level, worker and logger off the front of a line."""
    text = _TMUX.sub("", text) if text.endswith("]") or text.rstrip().endswith("]") else text
    line = Line(no, text, text)
    if _FENCE.match(text):
        line.text = ""
        return line
    position = 0
    for _ in range(12):
        space = _SPACE.match(text, position)
        start = space.end() if space else position
        for pattern in _prefixes(text[start : start + 1]):
            match = pattern.match(text, start)
            if match:
                break
        else:
            break
        groups = match.groupdict()
        if "stamp" in groups:
            line.time = line.time if line.time is not None else _seconds(match["stamp"])
        for name, value in groups.items():
            if value is None:
                continue
            if name.startswith(("tag", "rank")) and name[-1:].isdigit():
                line.tag = f"{line.tag}{TAG_JOINT}{value}" if line.tag else value
            elif name.startswith("r") and name[1:].isdigit():
                line.rank = int(value)
        position = match.end()
    if line.tag and line.rank is None:
        found = _RANK_ANYWHERE.search(line.tag)
        if found:
            line.rank = int(found[1] or found[2])
    line.text = text[position:]
    if line.text.endswith(("\u2502", "\u2503", "\u2551")):
        line.text = line.text[:-1].rstrip()
    return line


def _seconds(stamp: str) -> float | None:
    text = stamp.strip("[] ").replace("/", "-").replace(",", ".").replace("T", " ")
    fraction = 0.0
    match = re.search(r"\.(\d+)(?:Z|[+-]\d\d:?\d\d)?$", text)
    if match:
        fraction = float("0." + match[1])
    text = re.sub(r"(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?$", "", text) if len(text) > 10 else text
    for layout in ("%Y-%m-%d %H:%M:%S", "%m-%d-%y %H:%M:%S", "%m-%d-%Y %H:%M:%S"):
        try:
            return datetime.strptime(text, layout).replace(tzinfo=timezone.utc).timestamp() + fraction
        except ValueError:
            continue
    match = re.search(r"(\d\d):(\d\d):(\d\d)$", text)
    if match:
        return int(match[1]) * 3600.0 + int(match[2]) * 60 + int(match[3]) + fraction
    return None
