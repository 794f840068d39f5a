"""The report as one HTML file: offline, readable without a script, small enough to attach to a ticket."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from oomctl.model.ranks import Job
from oomctl.model.report import Report
from oomctl.report import charts
from oomctl.report.base import Options
from oomctl.report.json import compact
from oomctl.report.page import embedded, environment, page_hash, read_template
from oomctl.report.ranks_html import job_view
from oomctl.report.redact import DESCRIPTIONS, redact
from oomctl.report.texts import capital, clean, plural, ratio
from oomctl.report.thin import FULL, evenly, keep, thin
from oomctl.report.view import View, build_view, device_labels
from oomctl.units import format_size

if TYPE_CHECKING:
    from jinja2 import Environment

LIMIT: Final = 290_000
"""Bytes that a page keeps to."""
SECTIONS: Final = (
    ("books", "Books"),
    ("timeline", "Timeline"),
    ("steps", "Steps"),
    ("segments", "Segments"),
    ("culprits", "Culprits"),
    ("whatif", "Settings"),
    ("remedy", "What to do"),
    ("limits", "Not told"),
    ("series", "Series"),
    ("table1", "Tables"),
)
_MAP_LABELS: Final = {
    "live": ("o0", "live, by others"),
    "pending": ("pending", "freed, waiting for another stream"),
    "idle": ("idle_split", "idle"),
    "idle_other_stream": ("idle_other_streams", "idle, of another stream"),
    "idle_private_pool": ("idle_private_pools", "idle, in a private pool"),
    "mixed": ("o0", "several blocks"),
}
_TABLE_ROWS: Final = 40


class HtmlRenderer:
    """One offline page."""

    name = "html"
    suffixes: tuple[str, ...] = (".html", ".htm")
    redacts = "paths"

    def render(self, report: Report, options: Options) -> str:
        """See `render_html`."""
        return render_html(report, options.redact or self.redacts)


@dataclass(frozen=True, slots=True)
class _Device:
    """What the template shows of one device."""

    index: int
    id: str
    prefix: str
    view: View
    headline: str
    figures: tuple[tuple[str, str], ...]
    timeline: charts.Plot | None
    failures: tuple[charts.MarkLine, ...]
    has_clock: bool
    points: tuple[tuple[str, ...], ...]
    steps: charts.Plot | None
    step_rows: tuple[Any, ...]
    map: charts.MapPicture | None
    map_legend: tuple[tuple[str, str], ...]
    map_dropped: str
    scale_bars: tuple[tuple[str, str, float, str], ...]
    owners: tuple[str, ...]
    icicle: tuple[charts.Icicle, ...]
    icicle_depth: int
    curves: charts.Plot | None
    no_setting: str
    series: tuple[tuple[Any, Any, Any], ...]


def render_html(report: Report, mode: str = "none", limit: int = LIMIT) -> str:
    """One page of at most `limit` bytes; the more a report holds, the more its points are thinned.

    Args:
        report: What was concluded.
        mode: Redaction, "paths", "all" or "none".
        limit: Bytes.
    """
    pages = environment()
    caps = FULL.shared(1 + len(report.others))
    every = redact(replace(report, others=()), mode).job
    for _ in range(8):
        thinned, said = thin(report, caps)
        page = _page(pages, redact(thinned, mode), said, mode, every)
        over = len(page.encode("utf-8")) / limit
        if over <= 1:
            break
        caps = caps.harder().harder() if over > 2.5 else caps.harder()
    return page


def _page(pages: Environment, report: Report, thinned: tuple[str, ...], mode: str, every: Job | None) -> str:
    from markupsafe import Markup

    style, script = read_template("report.css"), read_template("report.js")
    labels = device_labels(report)
    devices = [_device(one, index, labels[index]) for index, one in enumerate((report, *report.others))]
    view = devices[0].view
    data = embedded(compact(report))
    return pages.get_template("report.html.j2").render(
        devices=devices,
        job=job_view(report, view.severity, every),
        sections=[
            *([("ranks", "Ranks")] if report.job is not None else []),
            *(section for section in SECTIONS if _has(devices[0], section[0])),
        ],
        style=Markup(style),
        script=Markup(script),
        data=Markup(data),
        style_hash=page_hash(style),
        script_hash=page_hash(script),
        version=clean(report.oomctl_version),
        page_title=f"{view.code} {view.cls.replace('_', ' ')}, {view.device} - oomctl",
        redaction=DESCRIPTIONS[mode],
        thinned=thinned,
    )


def _has(device: _Device, section: str) -> bool:
    view = device.view
    present = {
        "books": view.books,
        "timeline": device.timeline,
        "steps": device.steps,
        "segments": device.map or view.holes,
        "culprits": view.culprits,
        "whatif": view.whatif,
        "remedy": view.remedies,
        "limits": view.limits,
        "series": device.series,
        "table1": view.tables,
    }
    return bool(present[section])


def _device(report: Report, index: int, label: str) -> _Device:
    view = build_view(replace(report, others=()), 24, label=label)
    timeline = charts.timeline_plot(report.timeline)
    picture = charts.map_picture(report)
    cells = charts.icicle(report.culprits, report.culprits_rest_bytes)
    whatif = view.whatif
    steps = charts.steps_plot(report)
    return _Device(
        index=index,
        id=f"d{index}",
        prefix=f"d{index}-" if index else "",
        view=view,
        headline=capital(view.headline),
        figures=_figures(report),
        timeline=timeline,
        failures=_failures(report, timeline),
        has_clock=report.timeline is not None and report.timeline.time_us is not None,
        points=_points(report),
        steps=steps,
        step_rows=_step_rows(view) if steps is not None else (),
        map=picture,
        map_legend=_legend(report),
        map_dropped=_dropped(report),
        scale_bars=_scale_bars(report),
        owners=tuple("frame" if c.caller else charts.owner(c.rank) for c in report.culprits[:24]),
        icicle=cells,
        icicle_depth=max((cell.depth for cell in cells), default=0) + 1,
        curves=charts.curves_plot(report),
        no_setting=whatif.verdict if whatif is not None and whatif.verdict.startswith("No ") else "",
        series=tuple(
            (shown, charts.series_plot(series), [shown.points[i] for i in evenly(len(shown.points), _TABLE_ROWS)])
            for shown, series in zip(view.series, report.series, strict=True)
        )[:8],
    )


def _figures(report: Report) -> tuple[tuple[str, str], ...]:
    """The few numbers that stand out, at most five."""
    budget, request = report.budget, report.request
    figures = []
    if request is not None:
        need = request.size if request.size is not None else request.segment_size
        figures.append(("Asked for", need))
    if budget is not None:
        live = budget.active if budget.active is not None else budget.allocated
        figures += [
            ("Short by", budget.shortage or None),
            ("Live", live),
            ("Reserved", budget.reserved),
            ("Idle inside", budget.reserved - live if budget.reserved is not None and live is not None else None),
            ("Free on the card", budget.free),
        ]
    return tuple((name, format_size(value)) for name, value in figures if value is not None)[:5]


def _failures(report: Report, plot: charts.Plot | None) -> tuple[charts.MarkLine, ...]:
    """One entry of the legend for each kind of failure."""
    found: dict[str, list[charts.MarkLine]] = {}
    for mark in plot.marks if plot is not None else ():
        found.setdefault(mark.kind, []).append(mark)
    line = report.timeline
    drawn = len(found.get("step", ()))
    total = max(report.steps.total if report.steps is not None else 0, len(line.steps) if line is not None else 0)
    entries = []
    for kind, marks in found.items():
        if kind == "step":
            text = plural(total, "step") + (f" ({drawn:,} drawn)" if drawn < total else "")
        elif kind == "fatal":
            text = f"the failure: {marks[0].label}"
        else:
            text = plural(len(marks), f"{kind} failure")
        entries.append(charts.MarkLine(0.0, text, kind))
    return tuple(entries)


def _points(report: Report) -> tuple[tuple[str, ...], ...]:
    line = report.timeline
    if line is None:
        return ()
    rows = []
    for i in keep(line.active, _TABLE_ROWS):
        row = [f"{line.event[i]:,}"]
        if line.time_us is not None:
            row.append(f"{(line.time_us[i] - line.time_us[0]) / 1e6:,.3f}")
        rows.append((*row, format_size(line.active[i]), format_size(line.reserved[i])))
    return tuple(rows)


def _step_rows(view: View) -> tuple[Any, ...]:
    rows = view.steps.rows if view.steps is not None else ()
    return tuple(rows[i] for i in evenly(len(rows), 2 * _TABLE_ROWS))


def _legend(report: Report) -> tuple[tuple[str, str], ...]:
    """States and owners that the segment map really shows."""
    if report.segment_map is None:
        return ()
    states: dict[str, int] = {}
    owners: dict[int, str] = {}
    for segment in report.segment_map.segments:
        for piece in segment.pieces:
            if piece.state in ("live", "mixed") and piece.owner > 0:
                owners.setdefault(min(piece.owner, charts.COLOURS), piece.label)
            else:
                states[piece.state] = states.get(piece.state, 0) + piece.size
    shown = [(charts.owner(rank), f"live, {clean(label, 120)}") for rank, label in sorted(owners.items())]
    labels = _MAP_LABELS if owners else {**_MAP_LABELS, "live": ("o0", "live")}
    return (*shown, *(labels[state] for state in charts.STATES if state in states))


def _dropped(report: Report) -> str:
    found = report.segment_map
    if found is None or not found.dropped:
        return ""
    return f"Not drawn: {found.dropped:,} segments of {format_size(found.dropped_bytes)} together."


def _scale_bars(report: Report) -> tuple[tuple[str, str, float, str], ...]:
    """The request beside the largest hole and all holes, to one scale."""
    holes = report.holes
    if holes is None or not holes.need:
        return ()
    most = max(holes.need, holes.largest, holes.bytes)
    rows = (("The request needs", holes.need, "request"), ("Largest hole", holes.largest, "idle_split"),
            (f"All {holes.count:,} holes", holes.bytes, "idle_split"))  # fmt: skip
    return tuple((label, format_size(size), ratio(size, most), key) for label, size, key in rows)
