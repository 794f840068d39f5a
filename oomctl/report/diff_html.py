"""A comparison as one offline HTML page: figures, both curves on one axis, the rows."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from oomctl.model.diff import Curve, Diff
from oomctl.report import charts, diff
from oomctl.report.page import embedded, environment, page_hash, read_template
from oomctl.report.redact import DESCRIPTIONS
from oomctl.report.texts import clean, place, ratio, sentence, size
from oomctl.report.thin import keep
from oomctl.units import format_size

ROWS: Final = 60
_POINTS: Final = 480


@dataclass(frozen=True, slots=True)
class _Row:
    """One row as text with the length of its bar."""

    change: str
    before: str
    after: str
    blocks: str
    where: str
    function: str
    ratio: float
    stack: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Rows of one kind."""

    slug: str
    title: str
    change: str
    rows: tuple[_Row, ...]
    left: str


def render_page(found: Diff, mode: str) -> str:
    """The page.

    Args:
        found: What was compared, already redacted.
        mode: How, for the footer.
    """
    from markupsafe import Markup

    style = read_template("report.css")
    data = embedded(json.dumps(diff.diff_json(found), separators=(",", ":"), allow_nan=False))
    return (
        environment()
        .get_template("diff.html.j2")
        .render(
            found=found,
            severity="error" if found.guard is not None and found.guard.failed else "ok",
            headline=sentence(clean(found.headline, 1000)),
            before=diff.name_of(found.before),
            after=diff.name_of(found.after),
            figures=diff.figures(found),
            allocated=curves(found, "allocated"),
            reserved=curves(found, "reserved"),
            groups=_groups(found),
            total=diff.sum_line(found),
            same=f"{diff.same_line(found)} {diff.measure_line(found)}".strip(),
            steps_said=diff.steps_line(found),
            steps=[
                (clean(p.label, 80), size(p.peak_before), size(p.peak_after), diff.signed(p.peak_after - p.peak_before))
                for p in diff.shown_steps(found, 80)
            ],
            settings=[
                (clean(s.name, 200), clean(s.before or "not set"), clean(s.after or "not set")) for s in found.settings
            ],
            limits=[(clean(x.what), clean(x.reason), clean(x.capture)) for x in found.limits],
            redaction=DESCRIPTIONS[mode],
            style=Markup(style),
            style_hash=page_hash(style),
            data=Markup(data),
            version=clean(found.oomctl_version),
        )
    )


def curves(found: Diff, what: str) -> charts.Plot | None:
    """Allocated or reserved bytes of both runs over their events, on one axis.

    Args:
        found: The comparison.
        what: "allocated" or "reserved".
    """
    runs = [("before", found.before.curve, "c1"), ("after", found.after.curve, "c2")]
    drawn = [(name, curve, key) for name, curve, key in runs if curve is not None and len(curve.event) > 1]
    if not drawn:
        return None
    values = {name: _values(curve, what) for name, curve, _ in drawn}
    first = min(curve.event[0] for _, curve, _ in drawn)
    last = max(curve.event[-1] for _, curve, _ in drawn)
    span = max(last - first, 1)
    top, y = charts.y_axis(max(max(points) for points in values.values()))
    lines, marks = [], []
    for name, curve, key in drawn:
        points = keep(values[name], _POINTS)
        xs = [round((curve.event[i] - first) * charts.WIDE / span) for i in points]
        path = charts.steps_line(xs, [values[name][i] for i in points], top)
        lines.append(charts.Shape(path, key, f"{name}, peak {format_size(max(values[name]))}"))
        if what == "allocated" and curve.moment >= 0:
            marks.append(
                charts.MarkLine(charts.percent(curve.moment - first, span), f"moment compared, {name}", "step")
            )
    about = f"{what.capitalize()} memory of both runs over their events: " + "; ".join(s.label for s in lines) + "."
    return charts.Plot((), tuple(lines), None, "", tuple(marks), charts.x_axis(first, last), y, top, about)


def _values(curve: Curve, what: str) -> tuple[int, ...]:
    return curve.allocated if what == "allocated" else curve.reserved


def _groups(found: Diff) -> tuple[_Group, ...]:
    most = max((abs(row.change) for row in found.rows), default=1)
    made = []
    for status, change, rows, left, left_change in diff.groups(found, ROWS):
        made.append(
            _Group(
                status,
                diff.TITLES[status],
                diff.signed(change),
                tuple(
                    _Row(
                        diff.signed(row.change), size(row.bytes_before), size(row.bytes_after), diff.blocks_of(row),
                        *diff.where_of(row), ratio(abs(row.change), most),
                        tuple((*place(line.file, line.line, line.function), line.kind) for line in row.stack),
                    )
                    for row in rows
                ),
                f"{left:,} more places, {diff.signed(left_change)}" if left else "",
            )
        )  # fmt: skip
    return tuple(made)
