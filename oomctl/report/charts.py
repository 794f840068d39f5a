"""Charts as geometry: paths and positions that a template draws, so that every picture is there without a script.

Plots are drawn in a box of `WIDE` by `HIGH` units that the page stretches; positions of labels are percentages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from oomctl.model.log import Series
from oomctl.model.report import Culprit, Report, SegmentBar, Timeline
from oomctl.report.texts import clean, place
from oomctl.report.thin import evenly
from oomctl.units import KIB, format_size

WIDE: Final = 2000
HIGH: Final = 400
SHELF: Final = 20
"""Units of height of one row of the segment map."""
STATES: Final = ("live", "pending", "idle", "idle_other_stream", "idle_private_pool", "mixed")
COLOURS: Final = 8
"""Colours for owners; ranks beyond share the last."""
MARKS: Final = 48
"""Step marks that are drawn at most."""
_SHELVES: Final = 14
_TALLEST: Final = 9


@dataclass(frozen=True, slots=True)
class Tick:
    """A label at a percentage of an axis."""

    at: float
    text: str
    anchor: str = "middle"


@dataclass(frozen=True, slots=True)
class Shape:
    """A path with its colour key and what it is."""

    path: str
    key: str
    label: str


@dataclass(frozen=True, slots=True)
class MarkLine:
    """An upright line; `index` counts the steps and failures of the timeline."""

    at: float
    label: str
    kind: str
    index: int = 0


@dataclass(frozen=True, slots=True)
class Plot:
    """Areas and lines over events or steps.

    Attributes:
        areas: Filled, back to front.
        lines: Outlines.
        limit: Percentage from the top of the limit line, or None where it is off the scale.
        limit_text: The limit, and whether it is off the scale.
        marks: Steps and failures.
        x: Ticks of the axis below.
        y: Ticks of the axis at the left, percentages from the top.
        top: Bytes at the upper edge.
        about: What the picture shows, for those who cannot see it.
    """

    areas: tuple[Shape, ...]
    lines: tuple[Shape, ...]
    limit: float | None
    limit_text: str
    marks: tuple[MarkLine, ...]
    x: tuple[Tick, ...]
    y: tuple[Tick, ...]
    top: int
    about: str


@dataclass(frozen=True, slots=True)
class MapPicture:
    """Segments laid on shelves, all to one scale.

    Attributes:
        shapes: One path a state and owner.
        outlines: Outline of every segment.
        height: Units, `SHELF` a shelf.
        scale: Bytes that a full shelf holds.
        request: Rows of the request to scale as (x, width) percentages with its label, or None where it is longer than
            the map.
        rows: Segments as (place, size, live, idle, stream, pool).
        about: What it shows.
    """

    shapes: tuple[Shape, ...]
    outlines: str
    height: int
    scale: int
    request: float | None
    rows: tuple[tuple[str, ...], ...]
    about: str


@dataclass(frozen=True, slots=True)
class Icicle:
    """One cell of bytes by stack: percentages of the width, depth from 0."""

    x: float
    width: float
    depth: int
    label: str
    text: str
    key: str


def owner(rank: int) -> str:
    """Colour key of a culprit's rank; 0 is everything else."""
    return f"o{min(rank, COLOURS)}" if rank > 0 else "o0"


def timeline_plot(line: Timeline | None) -> Plot | None:
    """Live memory stacked by owner, the reserved line, the limit, steps and failures over the events."""
    if line is None or len(line.event) < 2:
        return None
    highest = max(*line.active, *line.reserved, 1)
    limit_fits = line.limit is not None and line.limit <= highest * 1.5
    top, y = y_axis(max(highest, line.limit or 0) if limit_fits else highest)
    first, span = line.event[0], max(line.event[-1] - line.event[0], 1)
    xs = [round((event - first) * WIDE / span) for event in line.event]
    # The largest rank is drawn first: each area reaches from the ground to the sum of the bands below it.
    bands = sorted(line.bands, key=lambda band: band.rank or 10**6)
    sums: list[tuple[int, ...]] = []
    for band in bands:
        sums.append(tuple(a + b for a, b in zip(sums[-1], band.values, strict=True)) if sums else band.values)
    areas = [
        Shape(area(xs, values, top), owner(band.rank), clean(band.label, 160))
        for band, values in zip(reversed(bands), reversed(sums), strict=True)
    ]
    lines = [Shape(steps_line(xs, line.reserved, top), "reserved", "reserved by PyTorch")] if line.reserved else []
    drawn = {*evenly(len(line.steps), MARKS), *range(len(line.steps), len(line.steps) + len(line.ooms))}
    marks = [
        MarkLine(percent(m.event - first, span), clean(m.label, 60), m.kind, i)
        for i, m in enumerate((*line.steps, *line.ooms))
        if i in drawn
    ]
    limit_text = ""
    if line.limit is not None:
        limit_text = format_size(line.limit) + ("" if limit_fits else " (above the picture)")
    peak = max(range(len(line.active)), key=line.active.__getitem__)
    about = (
        f"Live memory over {line.events_total:,} events: {format_size(line.active[0])} at first, highest "
        f"{format_size(line.active[peak])} at event {line.event[peak]:,}, reserved at most "
        f"{format_size(max(line.reserved, default=0))}"
    )
    return Plot(
        tuple(areas),
        tuple(lines),
        100 - percent(line.limit or 0, top) if limit_fits else None,
        limit_text,
        tuple(marks),
        x_axis(first, line.event[-1]),
        y,
        top,
        about + ".",
    )


def curves_plot(report: Report) -> Plot | None:
    """Reserved memory as recorded and under each replayed setting."""
    line, whatif = report.timeline, report.whatif
    if whatif is None or not any(len(run.curve_event) > 1 for run in whatif.runs):
        return None
    curves = [("recorded", line.event, line.reserved)] if line is not None and len(line.event) > 1 else []
    curves += [
        (clean(run.alloc_conf) or "defaults", run.curve_event, run.curve_reserved)
        for run in whatif.runs[:6]
        if len(run.curve_event) > 1
    ]
    first = min(events[0] for _, events, _ in curves)
    last = max(events[-1] for _, events, _ in curves)
    span = max(last - first, 1)
    highest = max(max(values) for _, _, values in curves)
    limit_fits = whatif.limit is not None and whatif.limit <= highest * 1.5
    top, y = y_axis(max(highest, whatif.limit or 0) if limit_fits else highest)
    lines = tuple(
        Shape(
            steps_line([round((event - first) * WIDE / span) for event in events], values, top),
            "reserved" if name == "recorded" else f"c{number}",
            f"{name}, peak {format_size(max(values))}",
        )
        for number, (name, events, values) in enumerate(curves, 0 if curves[0][0] == "recorded" else 1)
    )
    return Plot(
        (),
        lines,
        100 - percent(whatif.limit or 0, top) if limit_fits else None,
        "" if whatif.limit is None else format_size(whatif.limit) + ("" if limit_fits else " (above the picture)"),
        (),
        x_axis(first, last),
        y,
        top,
        "Reserved memory over the events: " + "; ".join(shape.label for shape in lines) + ".",
    )


def series_plot(series: Series) -> Plot | None:
    """A printed series."""
    if len(series.values) < 2:
        return None
    low, high = min(series.steps), max(series.steps)
    top, y = y_axis(max(*series.values, 1))
    span = (high - low) or 1
    xs = [round((step - low) / span * WIDE) for step in series.steps]
    return Plot(
        (Shape(area(xs, series.values, top, stepped=False), "o1", clean(series.name, 120)),),
        (),
        None,
        "",
        (),
        x_axis(low, high, ""),
        y,
        top,
        f"{clean(series.name, 120)}: {format_size(series.values[0])} at first, "
        f"{format_size(series.values[-1])} at last.",
    )


def steps_plot(report: Report) -> Plot | None:
    """Floor and peak of each step."""
    steps = report.steps
    if steps is None or len(steps.rows) < 2:
        return None
    top, y = y_axis(max(*(row.peak for row in steps.rows), 1))
    span = len(steps.rows) - 1
    xs = [round(i * WIDE / span) for i in range(len(steps.rows))]
    return Plot(
        (
            Shape(area(xs, [row.peak for row in steps.rows], top, stepped=False), "peak", "peak within the step"),
            Shape(area(xs, [row.floor for row in steps.rows], top, stepped=False), "o1", "live at its start"),
        ),
        (),
        None,
        "",
        (),
        _step_axis([row.index for row in steps.rows]),
        y,
        top,
        f"Live memory at the start of each of {steps.total:,} steps: {format_size(steps.rows[0].floor)} at first, "
        f"{format_size(steps.rows[-1].floor)} at last.",
    )


def map_picture(report: Report) -> MapPicture | None:
    """The segments at the failure, each a bar, on shelves of one scale."""
    found = report.segment_map
    if found is None or not found.segments:
        return None
    need = None if report.holes is None else report.holes.need
    total = sum(segment.size for segment in found.segments)
    scale = map_scale([segment.size for segment in found.segments], need)
    boxes: dict[tuple[str, str], list[str]] = {}
    outlines: list[str] = []
    shelf, start = 0, 0
    for segment in found.segments:
        if start and start + segment.size > scale:
            shelf, start = shelf + 1, 0
        _boxes(segment, start, shelf, scale, boxes, outlines)
        start += segment.size
    shapes = tuple(Shape("".join(path), f"{state} {key}".strip(), "") for (state, key), path in sorted(boxes.items()))
    rows = tuple(
        (
            f"0x{segment.address:x}",
            format_size(segment.size),
            format_size(segment.live),
            format_size(segment.size - segment.live),
            clean(segment.kind) + (", expandable" if segment.expandable else ""),
            f"0x{segment.stream:x}" if segment.stream else "default",
            "" if segment.pool_id == (0, 0) else f"private {segment.pool_id[0]}.{segment.pool_id[1]}",
        )
        for segment in found.segments
    )
    about = f"{len(found.segments):,} segments, {format_size(total)}, of which live "
    about += format_size(sum(segment.live for segment in found.segments))
    request = percent(need, scale) if need is not None and need <= scale else None
    return MapPicture(shapes, "".join(outlines), (shelf + 1) * SHELF, scale, request, rows, about + ".")


def map_scale(sizes: Sequence[int], need: int | None) -> int:
    """Bytes of a full shelf: the longest segment, or so much that the shelves stay few, or the request."""
    total = sum(sizes)
    scale = max(*sizes, total // _SHELVES, 1)
    if need is not None and need <= 2 * total:
        scale = max(scale, need)
    # No shelf need be longer than the fullest one: packed again, the shelves come out the same.
    fullest, length = 1, 0
    for size in sizes:
        length = size if length + size > scale else length + size
        fullest = max(fullest, length)
    return max(fullest, need) if need is not None and fullest < need <= scale else fullest


def _boxes(
    segment: SegmentBar,
    start: int,
    shelf: int,
    scale: int,
    boxes: dict[tuple[str, str], list[str]],
    outlines: list[str],
) -> None:
    y = shelf * SHELF + 2
    high = SHELF - 4
    left = _x(start, scale)
    outlines.append(f"M{left:g} {y}h{max(_x(segment.size, scale), 1):g}v{high}h{-max(_x(segment.size, scale), 1):g}z")
    at = start
    for piece in segment.pieces:
        x, end = _x(at, scale), _x(at + piece.size, scale)
        at += piece.size
        key = owner(piece.owner) if piece.state in ("live", "mixed") else ""
        boxes.setdefault((piece.state if piece.state in STATES else "idle", key), []).append(
            f"M{x:g} {y}h{round(end - x, 1):g}v{high}h{-round(end - x, 1):g}z"
        )


def _x(size: float, scale: int) -> float:
    return round(size * WIDE / scale, 1)


def icicle(culprits: Sequence[Culprit], rest: int) -> tuple[Icicle, ...]:
    """Bytes by stack from the outermost caller down; folded frames are left out.

    Args:
        culprits: The ranking.
        rest: Bytes of everything else.
    """
    held = [c for c in culprits if c.role != "requested" and not c.caller and c.bytes > 0]
    total = sum(c.bytes for c in held) + rest
    if not held or total <= 0:
        return ()
    cells: list[Icicle] = []

    def grow(group: list[tuple[Culprit, list[str]]], x: float, depth: int) -> None:
        heads: dict[str, list[tuple[Culprit, list[str]]]] = {}
        for one, frames in group:
            if frames:
                heads.setdefault(frames[0], []).append((one, frames[1:]))
        ordered = sorted(heads.items(), key=lambda item: -sum(c.bytes for c, _ in item[1]))
        for name, members in ordered:
            size = sum(c.bytes for c, _ in members)
            wide = size * 100 / total
            key = owner(members[0][0].rank) if len(members) == 1 else ""
            cells.append(Icicle(round(x, 3), round(wide, 3), depth, name, format_size(size), key))
            if depth < _TALLEST:
                grow(members, x, depth + 1)
            x += wide

    grow([(c, _frames(c)) for c in held], 0.0, 0)
    if rest > 0:
        wide = rest * 100 / total
        cells.append(Icicle(round(100 - wide, 3), round(wide, 3), 0, "everything else", format_size(rest), "o0"))
    return tuple(cells)


def _frames(culprit: Culprit) -> list[str]:
    names = [" ".join(place(f.file, f.line, f.function)).strip() for f in culprit.stack if f.kind == "user"]
    names.reverse()
    return names or [" ".join(place(culprit.file, culprit.line, culprit.function)).strip() or "unknown place"]


def area(xs: Sequence[int], values: Sequence[int], top: int, stepped: bool = True) -> str:
    """A closed path from the ground up to the values."""
    ys = [_y(value, top) for value in values]
    return f"M{xs[0]} {HIGH}V{ys[0]}{_run(xs, ys, stepped)}V{HIGH}z"


def steps_line(xs: Sequence[int], values: Sequence[int], top: int) -> str:
    """An open path that holds each value until the next point."""
    ys = [_y(value, top) for value in values]
    return f"M{xs[0]} {ys[0]}{_run(xs, ys, True)}"


def _run(xs: Sequence[int], ys: Sequence[int], stepped: bool) -> str:
    parts = []
    for i in range(1, len(xs)):
        across, down = xs[i] - xs[i - 1], ys[i] - ys[i - 1]
        if not stepped:
            parts.append(f"l{across} {down}")
            continue
        if across:
            parts.append(f"h{across}")
        if down:
            parts.append(f"v{down}")
    return "".join(parts)


def _y(value: int, top: int) -> int:
    return HIGH - round(min(max(value, 0), top) * HIGH / top)


def percent(part: float, whole: float) -> float:
    """part of whole in percent, to two places."""
    return round(part * 100 / whole, 2) if whole else 0.0


def y_axis(highest: int) -> tuple[int, tuple[Tick, ...]]:
    """Bytes at the upper edge and at most five round ticks, as percentages from the top."""
    unit = 1
    while highest >= unit * KIB:
        unit *= KIB
    step = next(s for s in _round_steps() if highest / (s * unit) <= 5) * unit
    top = round(highest * 1.04) or 1
    count = int(top // step)
    ticks = [
        Tick(100 - percent(step * i, top), format_size(round(step * i)).replace(".00", "") if i else "0", "start")
        for i in range(count + 1)
    ]
    return top, tuple(ticks)


def _round_steps() -> list[float]:
    return [0.25, 0.5, *accumulate([1] + [2] * 9, lambda a, b: a * b), 1024]


def _step_axis(steps: Sequence[int]) -> tuple[Tick, ...]:
    """At most five ticks, each at a step."""
    last = len(steps) - 1
    anchors = {0: "start", last: "end"}
    places = sorted({round(last * i / 4) for i in range(5)})
    return tuple(
        Tick(percent(i, last), ("" if i else "step ") + f"{steps[i]:,}", anchors.get(i, "middle")) for i in places
    )


def x_axis(first: float, last: float, before: str = "event ") -> tuple[Tick, ...]:
    """Five ticks from first to last."""
    ticks = []
    for i in range(5):
        value = first + (last - first) * i / 4
        anchor = "start" if i == 0 else "end" if i == 4 else "middle"
        ticks.append(Tick(i * 25.0, (before if i == 0 else "") + f"{value:,.0f}", anchor))
    return tuple(ticks)
