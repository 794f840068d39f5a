"""A comparison as text for a terminal, as markdown and as JSON (schema `oomctl.diff/1`)."""

# ruff: noqa: RUF001 (dashes and arrows are meant)
from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from oomctl.errors import OomctlError
from oomctl.model.diff import STATUSES, Diff, DiffRow, DiffSide, StepPair
from oomctl.report.base import MODES, Options
from oomctl.report.json import encode, pretty
from oomctl.report.markdown import code, escape, table
from oomctl.report.redact import DESCRIPTIONS, redact_record
from oomctl.report.terminal_page import Page
from oomctl.report.texts import base, clean, place, plural, sentence, short_path, size
from oomctl.report.thin import evenly
from oomctl.units import format_size

SCHEMA: Final = "oomctl.diff/1"
FORMATS: Final = ("terminal", "text", "json", "html", "markdown")
GREY: Final = "bright_black"
ROWS: Final = 12
"""Rows of each kind that are shown without `verbose`; the rest is one sum."""
MOST_ROWS: Final = 200
STEP_ROWS: Final = 12
_STYLES: Final = {"new": "red", "grown": "red", "shrunk": "green", "gone": "green"}
TITLES: Final = {
    "new": "New: only the run after has it",
    "grown": "Grown",
    "shrunk": "Shrunk",
    "gone": "Gone: only the run before had it",
}


def render_diff(found: Diff, fmt: str = "terminal", options: Options | None = None) -> str:
    """A comparison in one format.

    Args:
        found: From the diagnosis.
        fmt: One of `FORMATS`.
        options: How to render.

    Returns:
        Text that ends in a newline.

    Raises:
        OomctlError: No such format or redaction.
    """
    options = options or Options()
    if fmt not in FORMATS:
        raise OomctlError(f"no format {fmt!r}", "one of " + ", ".join(FORMATS))
    mode = options.redact or ("none" if fmt in ("terminal", "json") else "paths")
    if mode not in MODES:
        raise OomctlError(f"no redaction {mode!r}", "one of " + ", ".join(MODES))
    found = redact_record(found, mode)
    if fmt == "json":
        return pretty(diff_json(found)) + "\n"
    if fmt == "markdown":
        return _markdown(found, mode)
    if fmt == "html":
        from oomctl.report.diff_html import render_page

        return render_page(found, mode)
    page = Page(options.width, options.unicode)
    _terminal(page, found, options.verbose)
    return page.text(options.color and fmt == "terminal")


def diff_json(found: Diff) -> dict[str, Any]:
    """An object of schema `oomctl.diff/1`: sizes in bytes, unknown ones null."""
    return {"schema": SCHEMA, **encode(found)}


def signed(value: int | None) -> str:
    """A change of bytes with its sign, "0 B" for none, a dash for unknown."""
    if value is None:
        return "–"
    return ("+" if value > 0 else "") + format_size(value)


def share(change: int | None, of: int | None) -> str:
    """A change as a signed share of what was before; "" where that is nothing."""
    return f"{change / of:+.1%}" if change and of else ""


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure of both runs as text."""

    name: str
    before: str
    after: str
    change: str
    share: str
    up: bool


def figures(found: Diff) -> tuple[Figure, ...]:
    """Allocated, reserved and idle of both runs."""
    a, b = found.before, found.after
    what = "Allocated" if found.measure == "allocated" else "Live"
    rows: list[tuple[str, int | None, int | None]] = []
    if (a.at, b.at) != ("peak", "peak"):
        rows.append((f"{what} {_moment(b)}", a.allocated, b.allocated))
    rows += [
        (f"Peak {what.lower()}", a.peak_allocated, b.peak_allocated),
        ("Peak reserved", a.peak_reserved, b.peak_reserved),
        (f"Reserved {_moment(b)}", a.reserved, b.reserved),
        (f"Idle in it {_moment(b)}", _idle(a), _idle(b)),
    ]
    made = []
    for name, old, new in rows:
        change = None if old is None or new is None else new - old
        made.append(Figure(name, size(old), size(new), signed(change), share(change, old), (change or 0) > 0))
    return tuple(made)


def _moment(side: DiffSide) -> str:
    return {"peak": "at the peak", "oom": "at the failure", "end": "at the end"}[side.at]


def _idle(side: DiffSide) -> int | None:
    return None if side.reserved is None else side.reserved - side.allocated


def name_of(side: DiffSide) -> str:
    """The run as a name: its file and device."""
    path = side.inputs[0].path if side.inputs else "a snapshot"
    where = "" if side.device.index is None else f", GPU {side.device.index}"
    return clean(path, 200) + where


def blocks_of(row: DiffRow) -> str:
    """Blocks before and after."""

    def text(value: int | None) -> str:
        return "?" if value is None else f"{value:,}"

    one, other = text(row.blocks_before), text(row.blocks_after)
    return one if one == other else f"{one} → {other}"


def where_of(row: DiffRow) -> tuple[str, str]:
    """("file:line", "function"), with the line that it had before where it has moved."""
    where, function = place(row.file, row.line, row.function)
    if row.line_before is not None:
        function = f"{function} (was line {row.line_before})"
    return where, function


def groups(found: Diff, most: int) -> list[tuple[str, int, list[DiffRow], int, int]]:
    """(status, change of all its rows, rows shown, rows left out, their change), in the order of `STATUSES`."""
    made = []
    for status in STATUSES:
        rows = [row for row in found.rows if row.status == status]
        if rows:
            rest = rows[most:]
            made.append((status, sum(r.change for r in rows), rows[:most], len(rest), sum(r.change for r in rest)))
    return made


def sum_line(found: Diff) -> str:
    """The rows' sum in words, which is the change."""
    return f"{signed(found.change)} in all: {size(found.before.allocated)} → {size(found.after.allocated)}"


def measure_line(found: Diff) -> str:
    """What its bytes are, in words: `oomctl culprits` counts the same blocks by another measure."""
    if found.measure != "allocated":
        return "Live bytes are whole blocks, with what waits for another stream."
    return "Allocated bytes are requests as rounded; torch and oomctl culprits count whole blocks, which may be larger."


def same_line(found: Diff) -> str:
    """What did not change, in words."""
    if not found.same_rows:
        return ""
    word = {"stack": "stack", "frame": "place", "size": "size"}[found.by]
    return f"{plural(found.same_rows, word)} with {size(found.same_bytes)} did not change."


def steps_line(found: Diff) -> str:
    """Steps of both runs in a sentence."""
    steps = found.steps
    if steps is None:
        return ""
    text = f"{plural(steps.paired, 'step')} in both runs, marked by {clean(steps.name, 80)}"
    if steps.total_before != steps.total_after:
        text += f" ({steps.total_before:,} before, {steps.total_after:,} after)"
    text += f": the median peak of a step changed by {signed(steps.peak_change)}"
    if steps.floor_growth_before or steps.floor_growth_after:
        text += f"; the floor changed by {signed(steps.floor_growth_before)} a step before, "
        text += f"{signed(steps.floor_growth_after)} after"
    return text + "."


def shown_steps(found: Diff, most: int) -> list[StepPair]:
    """Steps to show, evenly chosen."""
    pairs = found.steps.pairs if found.steps is not None else ()
    return [pairs[i] for i in evenly(len(pairs), most)]


def _terminal(page: Page, found: Diff, verbose: bool) -> None:
    page.wrap((sentence(clean(found.headline, 1000)), "bold"))
    page.wrap(("before ", GREY), name_of(found.before), first=2, rest=9)
    page.wrap(("after  ", GREY), name_of(found.after), first=2, rest=9)
    if found.guard is not None:
        style = "red" if found.guard.failed else "green"
        page.wrap(("gate failed: " if found.guard.failed else "gate passed: ", style), found.guard.reason, ".", first=2)
    page.blank()
    head = [("", ""), ("before", GREY), ("after", GREY), ("change", GREY), ("", "")]
    table = [[(f.name, ""), (f.before, ""), (f.after, ""), (f.change, "bold"), (f.share, GREY)] for f in figures(found)]
    page.table([head, *table], right=(1, 2, 3, 4), cut=0)
    if found.settings:
        page.heading("Settings that differ")
        unset = "not set"
        told = [(clean(s.name), f"{clean(s.before or unset)} → {clean(s.after or unset)}") for s in found.settings]
        page.table([[(name, ""), (text, "")] for name, text in told], right=(), cut=1)
    for status, change, rows, left, left_change in groups(found, MOST_ROWS if verbose else ROWS):
        page.heading(TITLES[status], signed(change))
        lines = [[("change", GREY), ("before", GREY), ("after", GREY), ("blocks", GREY), ("where", GREY)]]
        for row in rows:
            where = " ".join(where_of(row)).strip()
            lines.append([(signed(row.change), _STYLES[status]), (size(row.bytes_before), ""),
                          (size(row.bytes_after), ""), (blocks_of(row), ""), (where, "")])  # fmt: skip
            if found.by == "stack":
                lines += [[("", ""), ("", ""), ("", ""), ("", ""), (text, GREY)] for text in _callers(row)]
        if left:
            lines.append([(signed(left_change), ""), ("", ""), ("", ""), ("", ""), (f"+ {left:,} more (-v)", GREY)])
        page.table(lines, right=(0, 1, 2, 3), cut=4)
    page.blank()
    page.wrap((sum_line(found), "bold"), f". {same_line(found)}".rstrip())
    page.wrap((measure_line(found), GREY))
    if found.steps is not None:
        page.heading("Step by step")
        page.wrap(steps_line(found), first=2)
        marks = [[("step", GREY), ("peak before", GREY), ("after", GREY), ("change", GREY)]]
        marks += [
            [(clean(p.label, 60), ""), (size(p.peak_before), ""), (size(p.peak_after), ""),
             (signed(p.peak_after - p.peak_before), "")]
            for p in shown_steps(found, MOST_ROWS if verbose else STEP_ROWS)
        ]  # fmt: skip
        page.table(marks, right=(1, 2, 3), cut=0)
    if found.limits:
        page.heading("What could not be told")
        for limit in found.limits:
            page.wrap(
                ("- ", GREY),
                (sentence(clean(limit.what)), "bold"),
                " " + sentence(clean(limit.reason)),
                first=2,
                rest=4,
            )


def _callers(row: DiffRow) -> list[str]:
    users = [line for line in row.stack if line.kind == "user"][1:4]
    return ["  ← " + " ".join(place(line.file, line.line, line.function)) for line in users]


def _markdown(found: Diff, mode: str) -> str:
    parts = [f"### {escape(sentence(clean(found.headline, 1000)))}"]
    if found.guard is not None:
        parts.append(f"**Gate {'failed' if found.guard.failed else 'passed'}**: {escape(found.guard.reason)}.")
    rows = [(f.name, f.before, f.after, f"**{f.change}**", f.share) for f in figures(found)]
    parts.append(table((f"{code(base(name_of(found.before)), True)} → {code(base(name_of(found.after)), True)}",
                        "Before", "After", "Change", ""), rows, (1, 2, 3, 4)))  # fmt: skip
    if found.settings:
        cells = [
            (code(clean(s.name), True), escape(clean(s.before or "not set")), escape(clean(s.after or "not set")))
            for s in found.settings
        ]
        parts.append(table(("Setting", "Before", "After"), cells, ()))
    for status, change, shown, left, left_change in groups(found, ROWS):
        lines = []
        for row in shown:
            where, function = where_of(row)
            path, colon, line = where.rpartition(":")
            near = short_path(path) + colon + line if colon else where
            lines.append((signed(row.change), size(row.bytes_before), size(row.bytes_after), blocks_of(row),
                          code(f"{near} {function}".strip(), True)))  # fmt: skip
        if left:
            lines.append((signed(left_change), "", "", "", f"{left:,} more"))
        lines.append((f"**{signed(change)}**", "", "", "", "**all**"))
        parts.append(table(("Change", "Before", "After", "Blocks", TITLES[status]), lines, (0, 1, 2, 3)))
    parts.append(" ".join(part for part in (f"**{sum_line(found)}**.", same_line(found), measure_line(found)) if part))
    if found.steps is not None:
        parts.append(escape(steps_line(found)))
    if found.limits:
        told = (f"- not told: {escape(limit.what)} ({escape(limit.reason)})" for limit in found.limits)
        parts.append("\n".join(told))
    parts.append(f"<sub>oomctl {escape(found.oomctl_version)}; names: {DESCRIPTIONS[mode]}</sub>")
    return "\n\n".join(part for part in parts if part) + "\n"
