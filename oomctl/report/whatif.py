"""What-if results as text for a terminal and as JSON (schema `oomctl.whatif/1`)."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any, Final

from oomctl import __version__
from oomctl.errors import OomctlError
from oomctl.model.alloc_conf.parse import entries
from oomctl.model.report import WhatIf, WhatIfRun
from oomctl.report.json import pretty
from oomctl.report.terminal_page import COLOURS, Page
from oomctl.report.texts import clean, sentence, size, width

SCHEMA: Final = "oomctl.whatif/1"
GREY: Final = "bright_black"
_WORDS: Final = {True: ("yes", "green"), False: ("no", "red"), None: ("open", "yellow")}
_MOST_CURVE: Final = 24


def render_whatif(
    whatif: WhatIf, fmt: str = "terminal", *, columns: int = 80, color: bool = False, unicode: bool = True
) -> str:
    """What-if results in one format.

    Args:
        whatif: From the allocator.
        fmt: "terminal" or "json".
        columns: Width that lines keep to.
        color: Write ANSI colours.
        unicode: False writes ASCII only.

    Returns:
        Text that ends in a newline.

    Raises:
        OomctlError: No such format.
    """
    if fmt == "json":
        return pretty(whatif_json(whatif)) + "\n"
    if fmt == "terminal":
        page = Page(columns, unicode)
        _page(page, whatif)
        return page.text(color)
    raise OomctlError(f"what-if results have no format {fmt!r}", "one of terminal, json")


def whatif_json(whatif: WhatIf) -> dict[str, Any]:
    """An object of schema `oomctl.whatif/1`: sizes in bytes, unknown ones null."""
    plain = dataclasses.asdict(whatif)
    runs = [{key: list(v) if isinstance(v, tuple) else v for key, v in run.items()} for run in plain.pop("runs")]
    notes = list(plain.pop("notes"))
    return {"schema": SCHEMA, "oomctl_version": __version__, **plain, "notes": notes, "runs": runs}


def _page(page: Page, whatif: WhatIf) -> None:
    _credential(page, whatif)
    _limit(page, whatif)
    asked = any(run.served is not None for run in whatif.runs)
    fitted = any(run.smallest_limit is not None for run in whatif.runs)
    common = _common_notes(whatif)
    page.blank()
    _table(page, whatif, asked, fitted)
    page.blank()
    _answer(page, whatif, asked)
    for note in (*whatif.notes, *common):
        page.wrap(("- ", GREY), sentence(clean(note)), first=2, rest=4)
    for run in whatif.runs:
        own = [note for note in run.notes if note not in common and note not in whatif.notes]
        if own:
            text = "; ".join(clean(note) for note in own)
            page.wrap(("- ", GREY), (_name(run, whatif), "bold"), f": {text}.", first=2, rest=4)
    while page.lines and not page.lines[-1].plain:
        page.lines.pop()


def _credential(page: Page, whatif: WhatIf) -> None:
    """How well the replay reproduces the recording: why the rest may be believed."""
    i = whatif.identity
    head = f"The replay reproduces {i.exact:,} of {i.allocs:,} recorded placements"
    head += f" and {i.segments_exact:,} of {i.segments:,} driver calls" if i.segments else ""
    page.wrap((head, "bold"), f": {clean(i.reason)}." if i.reason else " exactly.", rest=2)


def _limit(page: Page, whatif: WhatIf) -> None:
    recorded = f"Recorded with {clean(whatif.recorded_conf)}" if whatif.recorded_conf else "Recorded with the defaults"
    low, high = whatif.limit_low, whatif.limit_high
    if whatif.limit is not None:
        limit = f"replayed under a limit of {size(whatif.limit)}"
    elif low is not None and high is not None:
        limit = f"the limit lies between {size(low)} and {size(high)}, as far as the inputs tell"
    else:
        limit = "replayed without a limit; nothing was refused in the recording"
    page.wrap((f"{recorded}; {limit}.", GREY))


def _name(run: WhatIfRun, whatif: WhatIf) -> str:
    text = clean(run.alloc_conf) or "defaults"
    return text + " (as recorded)" if run.alloc_conf == whatif.recorded_conf else text


def _table(page: Page, whatif: WhatIf, asked: bool, fitted: bool) -> None:
    """One line a setting; a long setting goes on below, broken at its commas."""
    heads = ["peak reserved", *(["smallest limit"] if fitted else []), "served" if asked else "fails"]
    cells = [[*_numbers(run, fitted), _verdict(run, asked)] for run in whatif.runs]
    wide = [max(width(head), *(width(row[i][0]) for row in cells)) for i, head in enumerate(heads)]
    names = [entries(_name(run, whatif)) or ["defaults"] for run in whatif.runs]
    left = min(max(width(part) for name in names for part in name) + 1, page.columns - sum(wide) - 2 * len(wide) - 2)
    room = page.columns - left - sum(wide) - 2 * (len(wide) + 2)
    curve = min(room, _MOST_CURVE)
    top = max((max(run.curve_reserved, default=0) for run in whatif.runs), default=0)
    page.add("  ", ("setting".ljust(left), GREY), *((f"  {h:>{w}}", GREY) for h, w in zip(heads, wide, strict=True)))
    for run, row, name in zip(whatif.runs, cells, names, strict=True):
        parts = [part + ("," if k < len(name) - 1 else "") for k, part in enumerate(name)]
        shown = _spark(page, run, top, curve) if curve >= 8 and top else ""
        page.add(
            "  ",
            (page.fit(parts[0], "", left).ljust(left), "bold"),
            *((f"  {text:>{w}}", style) for (text, style), w in zip(row, wide, strict=True)),
            ("  " + shown, COLOURS["idle_split"]),
        )
        for part in parts[1:]:
            page.add("   ", (page.fit(part, "", left), "bold"))


def _numbers(run: WhatIfRun, fitted: bool) -> list[tuple[str, str]]:
    about = "about " if run.certainty == "estimate" else ""
    peak = "withheld" if run.peak_reserved is None else about + size(run.peak_reserved)
    found = [(peak, "")]
    if fitted:
        found.append(("" if run.smallest_limit is None else size(run.smallest_limit), ""))
    return found


def _verdict(run: WhatIfRun, asked: bool) -> tuple[str, str]:
    if asked:
        word, style = _WORDS[run.served]
        doubt = run.certainty in ("likely", "estimate") and run.served is not None
        return (f"likely {word}" if doubt else word, style)
    return ("", "") if run.oom is None else ("yes", "red") if run.oom else ("no", "green")


def _spark(page: Page, run: WhatIfRun, top: int, columns: int) -> str:
    """The reserved curve over events; the curve is a staircase, so each column takes the level that it is at."""
    events, values = run.curve_event, run.curve_reserved
    if not events or columns < 1:
        return ""
    last = max(events[-1], 1)
    heights, k, level = [], 0, values[0]
    for column in range(columns):
        until = last * (column + 1) / columns
        highest = level
        while k < len(events) and events[k] <= until:
            level = values[k]
            highest = max(highest, level)
            k += 1
        heights.append(highest / top)
    return page.spark(heights, columns)


def _common_notes(whatif: WhatIf) -> tuple[str, ...]:
    """Notes of more than one and of every run that has any: said once."""
    counts = Counter(note for run in whatif.runs for note in set(run.notes))
    with_notes = sum(bool(run.notes) for run in whatif.runs)
    said = set(whatif.notes)
    return tuple(note for note, n in counts.items() if n > 1 and n >= with_notes - 1 and note not in said)


def _answer(page: Page, whatif: WhatIf, asked: bool) -> None:
    if not asked:
        return
    helped = [run for run in whatif.runs if run.served]
    if helped:
        text = f"The request that failed would have been served under {len(helped)} of {len(whatif.runs)} settings."
        page.wrap((text, "bold"), " Whether the program would have run on to its end, no replay can say.")
    elif all(run.served is False for run in whatif.runs):
        page.wrap(("The request that failed would have failed under every setting that was replayed.", "bold"))
    if whatif.limit is None and whatif.limit_low is not None and any(run.served is None for run in whatif.runs):
        page.wrap("The log with the out-of-memory message beside the snapshot, or --limit, settles what is open.")
