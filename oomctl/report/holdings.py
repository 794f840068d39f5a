"""Who holds the live bytes, as text for a terminal and as JSON (schema `oomctl.culprits/1`)."""

from __future__ import annotations

from typing import Any, Final

from oomctl import __version__
from oomctl.errors import OomctlError
from oomctl.model.holdings import HoldingRow, Holdings
from oomctl.report.json import encode, pretty
from oomctl.report.redact import redact_record
from oomctl.report.terminal_page import Page
from oomctl.report.texts import clean, percent, place, plural, ratio, sentence, size

SCHEMA: Final = "oomctl.culprits/1"
GREY: Final = "bright_black"
ROWS: Final = 20
"""Rows that are shown without `verbose`; the rest is one sum."""
_CALLERS: Final = 3
_AT: Final = {"oom": "at the failure", "peak": "at the peak", "end": "at the end", "event": "at event"}


def render_holdings(
    found: Holdings,
    fmt: str = "terminal",
    *,
    columns: int = 80,
    color: bool = False,
    unicode: bool = True,
    verbose: bool = False,
    redact: str | None = None,
) -> str:
    """Holdings in one format.

    Args:
        found: From the analysis.
        fmt: "terminal" or "json".
        columns: Width that lines keep to.
        color: Write ANSI colours.
        unicode: False writes ASCII only.
        verbose: Every row.
        redact: "paths", "all" or "none", the default.

    Returns:
        Text that ends in a newline.

    Raises:
        OomctlError: No such format.
    """
    found = redact_record(found, redact or "none")
    if fmt == "json":
        return pretty(holdings_json(found)) + "\n"
    if fmt != "terminal":
        raise OomctlError(f"holdings have no format {fmt!r}", "one of terminal, json")
    page = Page(columns, unicode)
    _page(page, found, verbose)
    return page.text(color)


def holdings_json(found: Holdings) -> dict[str, Any]:
    """An object of schema `oomctl.culprits/1`: sizes in bytes, unknown ones null."""
    return {"schema": SCHEMA, "oomctl_version": __version__, **encode(found)}


def _page(page: Page, found: Holdings, verbose: bool) -> None:
    where = "GPU" if found.device.index is None else f"GPU {found.device.index}"
    number = f" {found.event:,}" if found.at == "event" else ""
    page.wrap(
        (f"{size(found.active)} in {plural(found.blocks, 'live block')} {_AT[found.at]}{number}", "bold"),
        f"; {size(found.reserved)} reserved on {where}.",
    )
    told = [f"event {found.event:,} of {found.events_total:,}"] if found.event >= 0 and found.at != "event" else []
    if found.pending:
        told.append(f"{size(found.pending)} of it freed by the program and waiting for another stream")
    if told:
        page.wrap((sentence("; ".join(told)), GREY))
    page.blank()
    shown = found.rows if verbose else found.rows[:ROWS]
    rest = found.rows[len(shown) :]
    head = [
        ("bytes", GREY),
        ("share", GREY),
        ("blocks", GREY),
        ("size of each" if found.by == "size" else "where", GREY),
    ]
    table = [head]
    most = max((row.bytes for row in shown), default=1)
    for row in shown:
        table.append([(size(row.bytes), ""), (percent(row.bytes, found.active), ""), (f"{row.blocks:,}", ""),
                      (_what(page, row, most), "")])  # fmt: skip
        if found.by == "stack":
            table += [[("", ""), ("", ""), ("", ""), (text, GREY)] for text in _callers(row)]
    if rest:
        held, blocks = sum(row.bytes for row in rest), sum(row.blocks for row in rest)
        table.append([(size(held), ""), (percent(held, found.active), ""), (f"{blocks:,}", ""),
                      (f"+ {len(rest):,} more", GREY)])  # fmt: skip
    table.append([(size(found.active), "bold"), ("100.0%" if found.active else "", "bold"),
                  (f"{found.blocks:,}", "bold"), ("", "")])  # fmt: skip
    page.table(table, right=(0, 1, 2), cut=3)
    if rest:
        page.add(("  -v shows every row.", GREY))
    for limit in found.limits:
        page.wrap(("- ", GREY), sentence(f"not told: {clean(limit.what)}; {clean(limit.reason)}"), first=2, rest=4)


def _what(page: Page, row: HoldingRow, most: int) -> str:
    if row.size is not None:
        stacks = f"  from {plural(row.stacks, 'stack')}" if row.stacks else ""
        return f"{size(row.size)}{stacks}  {page.bar(ratio(row.bytes, most), 20)}".rstrip()
    where, function = place(row.file, row.line, row.function)
    return f"{where} {function}".strip()


def _callers(row: HoldingRow) -> list[str]:
    users = [line for line in row.stack if line.kind == "user"][1 : _CALLERS + 1]
    return ["  ← " + " ".join(place(line.file, line.line, line.function)) for line in users]
