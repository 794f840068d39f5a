"""The report for a terminal: the verdict in line 1, the books, the evidence, the culprits, the remedy, the limits."""

from __future__ import annotations

from typing import Final

from oomctl.model.report import Report
from oomctl.report import ranks
from oomctl.report.base import Options
from oomctl.report.terminal_page import COLOURS, NARROW, Page
from oomctl.report.texts import cut_right, short_path
from oomctl.report.texts import width as columns
from oomctl.report.view import CulpritView, RemedyView, View, build_view
from oomctl.units import format_size

STYLES: Final = {"error": "bold red", "warning": "bold yellow", "ok": "bold green"}
GREY: Final = "bright_black"
_FEW, _MANY = 6, 40
"""Rows of a table, and with verbose."""


class TerminalRenderer:
    """Plain or coloured text of a given width."""

    name = "terminal"
    suffixes: tuple[str, ...] = ()
    redacts = "none"

    def render(self, report: Report, options: Options) -> str:
        """See `render_terminal`."""
        mode = options.redact or self.redacts
        if mode != "none":  # as a terminal's report is by default: then nothing of it need be loaded
            from oomctl.report.redact import redact

            report = redact(report, mode)
        return render_terminal(
            report,
            width=options.width,
            color=options.color,
            verbose=options.verbose,
            unicode=options.unicode,
            whole_verdict=options.whole_verdict,
        )


def render_terminal(
    report: Report,
    *,
    width: int = 80,
    color: bool = False,
    verbose: bool = False,
    unicode: bool = True,
    whole_verdict: bool = False,
) -> str:
    """The report as lines.

    Args:
        report: What was concluded.
        width: Columns that lines keep to.
        color: Write ANSI colours.
        verbose: More rows in every table, stacks, replays.
        unicode: False writes ASCII only.
        whole_verdict: Keep the verdict on one line however long, for pipes that are searched line by line.

    Returns:
        Text that ends in a newline.
    """
    page = Page(width, unicode)
    view = build_view(report, _MANY if verbose else _FEW)
    if report.job is not None:
        style = STYLES[view.severity]
        ranks.terminal(page, report.job, view.severity, view.code, view.cls, style, verbose, whole_verdict)
        page.blank()
        page.add(("─" if unicode else "-") * page.columns)
        page.wrap((f"{view.device} in full", "bold"))
    _device(page, view, report, verbose, whole_verdict)
    for other_view, other in zip(view.others, report.others, strict=True):
        page.blank()
        if verbose:
            page.add(("─" if unicode else "-") * page.columns)
            _device(page, other_view, other, verbose, whole_verdict)
        else:
            page.wrap((f"{other_view.device}: ", "bold"), f"{other_view.cls}: {other_view.headline}", rest=2)
    if view.others and not verbose:
        which = "ranks" if report.job is not None else "devices"
        page.wrap((f"-v shows the other {which} in full, --device and --rank one of them.", GREY))
    return page.text(color)


def _device(page: Page, view: View, report: Report, verbose: bool, whole: bool) -> None:
    style = STYLES[view.severity]
    head = ((f"{view.severity}[{view.code}]", style), (f" {view.cls}: ", "bold"), view.headline)
    page.add(*head) if whole else page.wrap(*head, rest=2)
    page.wrap((" · ".join(view.context), GREY), first=2)
    quiet = view.severity == "ok" and not verbose
    _books(page, view)
    if quiet:
        return
    _evidence(page, view, report, verbose)
    if view.holes is not None and (view.cls == "fragmentation" or verbose):
        _holes(page, view)
    if view.steps is not None and (view.cls in ("leak", "transient_peak") or verbose):
        _steps(page, view, verbose)
    _culprits(page, view, verbose)
    if view.tables and (verbose or report.timeline is None):
        _tables(page, view, verbose)
    _series(page, view, report)
    if verbose:
        _whatif(page, view)
    if view.conf_issues:
        page.heading("Settings in force", dict(view.facts).get("Allocator settings", ""))
        for severity, message in view.conf_issues:
            page.wrap((f"{severity}: ", "bold yellow" if severity != "note" else GREY), message, first=2, rest=4)
    _remedies(page, view, verbose)
    _limits(page, view)
    if verbose:
        page.heading("For the ticket")
        page.table([[(name, GREY), (text, "")] for name, text in view.facts], (), 1)
        for path, facts in view.files:
            page.add("  ", page.fit(path, "", page.columns - 2))
            page.wrap((facts, GREY), first=4)


def _books(page: Page, view: View) -> None:
    books = view.books
    if books is None:
        return
    page.heading("The books", f"{books.title}; {books.source}")
    room = page.columns - 2
    share = books.reserved_end - books.reserved_start
    second = books.whole == "The card" and len(books.reserved) > 1 and share < 0.6
    label = 10 if second else 0
    keys = [row.key for row in books.rows]
    ratios = [row.ratio for row in books.rows]
    page.add("  ", (f"{'the card':{label}}" if second else "", GREY), *page.stacked(keys, ratios, room - label))
    if second:
        keys, ratios = [row.key for row in books.reserved], [row.ratio for row in books.reserved]
        page.add("  ", (f"{'reserved':{label}}", GREY), *page.stacked(keys, ratios, room - label))
    rows = [
        [(page.glyphs[row.key], COLOURS[row.key]), (row.label, ""), (row.text, ""), (row.share, GREY)]
        for row in books.rows
    ]
    rows.append([("", ""), (books.whole, "bold"), (books.total, "bold"), ("100.0%", GREY)])
    page.table(rows, (2, 3), 1)
    for note in books.notes:
        page.wrap((note, "bold" if note.startswith("Short") else ""), first=2)


def _evidence(page: Page, view: View, report: Report, verbose: bool) -> None:
    if not view.evidence and not view.contributing:
        return
    page.heading("Evidence")
    for number, item in enumerate(view.evidence, 1):
        page.wrap((f"{number}. ", GREY), item.statement, first=2, rest=5)
        if verbose and item.numbers:
            page.wrap((", ".join(f"{name} {text}" for name, text in item.numbers), GREY), first=5)
    for cls, share, statement in view.contributing:
        page.wrap(
            ("also ", GREY),
            (cls, "bold"),
            f" {share}" if share else "",
            f": {statement}" if statement else "",
            first=2,
            rest=5,
        )
    timeline = report.timeline
    if timeline is not None and len(timeline.active) > 1:
        top = max(*timeline.active, *timeline.reserved, 1)
        line = page.spark([value / top for value in timeline.active], page.columns - 9)
        page.add("  ", ("live ", GREY), (line, COLOURS["live"]))
        if timeline.reserved and max(timeline.reserved) > 0:
            line = page.spark([value / top for value in timeline.reserved], page.columns - 9)
            page.add("  ", ("held ", GREY), (line, COLOURS["idle_split"]))
        page.wrap(
            (
                f"over {timeline.events_total:,} events, up to {format_size(top)}; live: in use, held: reserved",
                GREY,
            ),
            first=7,
        )


def _bar(page: Page, ratio: float, columns: int) -> str:
    """A bar in a table; none where the page is too narrow for the numbers themselves."""
    return page.bar(ratio, columns) if page.columns >= NARROW else ""


def _holes(page: Page, view: View) -> None:
    holes = view.holes
    assert holes is not None
    page.heading(holes.title, holes.verdict)
    filled = [row for row in holes.rows if row.count != "0"]
    rows = [
        [
            (row.range, ""),
            (row.count, ""),
            (row.bytes, ""),
            (_bar(page, row.ratio, max(page.columns - 56, 8)), COLOURS["live" if row.fits else "idle_split"]),
            ("fits" if row.fits else "", ""),
        ]
        for row in filled
    ]
    head = [("size of hole", GREY), ("count", GREY), ("bytes", GREY), ("", ""), ("", "")]
    total = [("all holes", "bold"), (holes.total_count, "bold"), (holes.total_bytes, "bold"), ("", ""), ("", "")]
    page.table([head, *rows, total], (1, 2), 0)


def _steps(page: Page, view: View, verbose: bool) -> None:
    steps = view.steps
    assert steps is not None
    page.heading("Steps", steps.verdict)
    shown = list(steps.rows)
    cut = 0
    if len(shown) > (_MANY if verbose else _FEW):
        tail = _MANY - 2 if verbose else _FEW - 2
        cut = len(shown) - 2 - tail
        shown = [*shown[:2], *shown[-tail:]]
    by_peak = view.cls != "leak"
    drawn = "" if by_peak or page.columns < NARROW else "at its start"
    rows = [[("step", GREY), ("at its start", GREY), ("change", GREY), ("peak", GREY), (drawn, GREY)]]
    for i, step in enumerate(shown):
        if cut and i == 2:
            rows.append([(f"({cut:,} more)", GREY), *[("", "")] * 4])
        bar = _bar(page, step.peak_ratio if by_peak else step.ratio, max(page.columns - 66, 6))
        label = step.label + (" (warm-up)" if step.warmup else "")
        rows.append([(label, ""), (step.floor, ""), (step.change, ""), (step.peak, GREY), (bar, COLOURS["live"])])
    page.table(rows, (1, 2, 3), 0)


def _culprits(page: Page, view: View, verbose: bool) -> None:
    culprits = view.culprits
    if culprits is None:
        return
    page.heading(culprits.title, culprits.basis)
    # Below the sum stand the callers, who hold what the rows above it hold already.
    rows = [row for row in culprits.rows if not row.caller] + ([culprits.rest] if culprits.rest else [])
    callers = [row for row in culprits.rows if row.caller]
    total = (culprits.total, "100.0%", culprits.total_blocks)
    numbers = [("bytes", "share", "blocks"), *((row.bytes, row.share, row.blocks) for row in [*rows, *callers]), total]
    wide = [max(columns(line[i]) for line in numbers) for i in range(3)]
    narrow = page.columns < NARROW
    below = 4 if narrow else sum(wide) + 8

    def line(cells: tuple[str, str, str], mark: str, where: tuple[str, str], role: str, style: str) -> None:
        left = "  ".join(f"{cell:>{w}}" for cell, w in zip(cells, wide, strict=True))
        if narrow:
            page.add("  ", (left, style), "  ", (mark, "bold red"))
            fitted = page.fit(*where, page.columns - 4)
            if fitted:
                page.wrap((fitted, style), (f"  {role}" if role else "", GREY), first=4, rest=6)
            return
        used = 2 + sum(wide) + 4 + 2 + 2 + (len(role) + 2 if role else 0)
        fitted = page.fit(*where, page.columns - used)
        at = fitted + " " * (page.columns - used - columns(fitted)) if role else fitted
        page.add(
            "  ", (left, style), "  ", (mark or " ", "bold red"), " ", (at, style), (f"  {role}" if role else "", GREY)
        )

    def place(row: CulpritView) -> None:
        where = row.where if row is culprits.rest else _near(row.where)
        line((row.bytes, row.share, row.blocks), "◆" if row.accumulation else "", (where, row.function), row.role, "")
        if row is culprits.rest:
            return
        if row.source:
            room = page.columns - below - 2
            page.add(" " * (below + 2), (cut_right(page.say(row.source.strip()), room, page.mark), GREY))
        if verbose:
            for at, function, kind in row.stack[row.stack[:1] == ((row.where, row.function, "user"),) :]:
                page.add(" " * below, (page.fit(_near(at), function, page.columns - below), _dim(kind)))
        elif row is rows[0]:
            called = _callers(row)
            if called:
                page.wrap((called, GREY), first=below + 2)

    line(numbers[0], "", ("where", ""), "", GREY)
    for row in rows:
        place(row)
    if culprits.total:
        line(total, "", ("all", ""), "", "bold")
    for row in callers:
        place(row)
    if any(row.accumulation for row in culprits.rows):
        page.wrap(("◆ the deepest place that, with what it calls, made most of the bytes", GREY), first=2)


def _dim(kind: str) -> str:
    return "" if kind == "user" else GREY


def _near(where: str) -> str:
    path, colon, line = where.rpartition(":")
    return short_path(path) + colon + line if colon else short_path(where)


def _callers(row: CulpritView) -> str:
    user = [(at, name) for at, name, kind in row.stack if kind == "user"]
    own = (row.where, row.function)
    user = user[user.index(own) + 1 if own in user else 1 :]
    shown = [f"{_near(at)} {name}" for at, name in user[:3]]
    return "called by " + " ← ".join(shown) if shown else ""


def _tables(page: Page, view: View, verbose: bool) -> None:
    for table in view.tables:
        page.heading(table.title, table.facts)
        rows = [[("", ""), ("now", GREY), ("peak", GREY), ("", "")]]
        for row in table.rows:
            if row.pool and not verbose:
                continue
            label = f"  {row.pool}" if row.pool else row.metric
            rows.append(
                [(label, ""), (row.cells[0], ""), (row.cells[1], ""), ("!" if row.doubt else "", "bold yellow")]
            )
        page.table(rows, (1, 2), 0)
        for row in table.rows:
            if row.note and (row.doubt or verbose):
                page.wrap(("! " if row.doubt else "  ", "bold yellow"), f"{row.metric}: {row.note}", first=2, rest=4)


def _series(page: Page, view: View, report: Report) -> None:
    for shown, series in zip(view.series[:4], report.series, strict=False):
        page.heading(f"Series {shown.name}", shown.summary)
        top = max(series.values, default=0)
        if top > 0:
            page.add("  ", (page.spark([v / top for v in series.values], page.columns - 4), COLOURS["live"]))
    if len(view.series) > 4:
        page.wrap((f"{len(view.series) - 4:,} more series in the JSON and HTML reports.", GREY), first=2)


def _whatif(page: Page, view: View) -> None:
    whatif = view.whatif
    if whatif is None:
        return
    page.heading("Under other settings", whatif.identity)
    rows = [[("setting", GREY), ("peak reserved", GREY), ("request", GREY), ("retries", GREY), ("certainty", GREY)]]
    for run in whatif.rows:
        rows.append(
            [(run.conf, ""), (run.peak_reserved, ""), (run.served, ""), (run.retries, ""), (run.certainty, GREY)]
        )
    page.table(rows, (1, 3), 0)
    for note in whatif.notes:
        page.wrap((note, GREY), first=2)


def _remedies(page: Page, view: View, verbose: bool) -> None:
    shown = view.remedies if verbose else view.remedies[:3]
    says_none = view.whatif is not None and view.whatif.verdict.startswith("No ")
    if not shown and not says_none:
        return
    page.heading("What to do")
    for number, remedy in enumerate(shown, 1):
        _remedy(page, number, remedy, len(shown) > 1, verbose or number == 1)
    if says_none and view.whatif is not None:
        page.wrap(view.whatif.verdict, first=2)
    if len(view.remedies) > len(shown):
        page.wrap((f"-v shows {len(view.remedies) - len(shown)} more.", GREY), first=2)


def _remedy(page: Page, number: int, remedy: RemedyView, many: bool, full: bool) -> None:
    left = 5 if many else 2
    head = [(f"{number}. ", GREY)] if many else []
    page.wrap(*head, (remedy.title, "bold"), (f"  ({remedy.kind}, {remedy.applicability})", GREY), first=2, rest=left)
    if remedy.location:
        page.add(" " * left, ("at ", GREY), (page.fit(remedy.location, "", page.columns - left - 3), ""))
    if remedy.why:
        page.wrap(remedy.why, first=left)
    if remedy.paste:
        page.add(" " * (left + 2), (remedy.paste, "bold green"))
    if remedy.replay:
        page.wrap(remedy.replay, first=left)
    if remedy.example and full:
        for line in remedy.example.split("\n")[:12]:
            page.add(" " * (left + 2), (line, "green"))
    for caveat in remedy.caveats if full else ():
        page.wrap(("cost: ", GREY), caveat, first=left, rest=left + 2)


def _limits(page: Page, view: View) -> None:
    if not view.limits:
        return
    page.heading("What could not be told")
    for what, reason, capture in view.limits:
        page.wrap(("- ", GREY), what, f" {reason}" if reason else "", first=2, rest=4)
        if capture:
            page.wrap(("would tell it: ", GREY), capture, first=4, rest=6)
