"""Reports small enough to attach: points and rows are thinned here, and what was dropped is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final

from oomctl.model.log import OomEvent, Series
from oomctl.model.ranks import Job
from oomctl.model.report import Mark, Report, SegmentBar, SegmentMap, Steps, Timeline, WhatIf, WhatIfRun
from oomctl.report.ranks import chosen


@dataclass(frozen=True, slots=True)
class Caps:
    """How much of each part is kept, for one device.

    Attributes:
        points: Of the timeline, of each curve and series.
        pieces: Of the segment map, all segments together.
        rows: Steps, marks, memory_summary tables, other long lists.
        culprits: Places in the ranking; the others join its rest.
        stack: Frames of a stack.
        text: Characters of one text.
        ranks: Ranks in the table of a job.
        detailed: Other devices that keep their pictures; the rest keep the verdict, the books and the ranking.
    """

    points: int = 480
    pieces: int = 1500
    rows: int = 400
    culprits: int = 40
    stack: int = 24
    text: int = 2000
    detailed: int = 15
    ranks: int = 1024

    def shared(self, devices: int) -> Caps:
        """The same for so many devices together."""
        return replace(
            self,
            points=max(self.points // devices, 48),
            pieces=max(self.pieces // devices, 60),
            rows=max(self.rows // devices, 12),
            culprits=max(self.culprits // devices, 8),
        )

    def harder(self) -> Caps:
        """About half of everything."""
        return Caps(
            points=max(self.points // 2, 24),
            pieces=self.pieces // 2,
            rows=max(self.rows // 2, 6),
            culprits=max(self.culprits // 2, 4),
            stack=max(self.stack // 2, 3),
            text=max(self.text // 2, 100),
            detailed=self.detailed // 2,
            ranks=max(self.ranks // 2, 32),
        )


FULL: Final = Caps()


def thin(report: Report, caps: Caps = FULL) -> tuple[Report, tuple[str, ...]]:
    """A report with at most so many points and rows, and sentences that say what was dropped.

    Args:
        report: What was concluded.
        caps: How much is kept.
    """
    said: dict[str, None] = {}
    thinned = _thin(report, caps, said)
    return thinned, tuple(said)


def keep(values: Sequence[int], most: int, always: Sequence[int] = ()) -> list[int]:
    """Indices of at most `most` points (and a few more) of a curve: highest and lowest of each stretch, in order.

    Args:
        values: The curve.
        most: Points to keep.
        always: Indices that must stay.
    """
    if len(values) <= most:
        return list(range(len(values)))
    stretches = max(most // 2, 1)
    kept = {0, len(values) - 1, *(i for i in always if 0 <= i < len(values))}
    for stretch in range(stretches):
        span = range(stretch * len(values) // stretches, (stretch + 1) * len(values) // stretches)
        kept.add(max(span, key=values.__getitem__))
        kept.add(min(span, key=values.__getitem__))
    return sorted(kept)


def evenly(count: int, most: int) -> list[int]:
    """Indices of at most `most` of `count` rows, evenly spaced, the first and last among them."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def _job(job: Job | None, caps: Caps, said: dict[str, None]) -> Job | None:
    if job is None or len(job.rows) <= caps.ranks:
        return job
    said[f"The table of ranks keeps {caps.ranks:,} of {len(job.rows):,}, failures first."] = None
    kept, _ = chosen(job, caps.ranks, usual=caps.ranks)
    return replace(job, rows=tuple(job.rows[i] for i in sorted(kept)))


def _thin(report: Report, caps: Caps, said: dict[str, None]) -> Report:
    cut = [c for c in report.culprits[caps.culprits :] if c.role != "requested" and not c.caller]
    if cut:
        said[f"The ranking keeps {caps.culprits:,} places; the others are in its last row."] = None
    shorter = replace(
        report,
        job=_job(report.job, caps, said),
        timeline=_timeline(report.timeline, caps, said),
        steps=_steps(report.steps, caps, said),
        segment_map=_segments(report.segment_map, caps, said),
        whatif=_whatif(report.whatif, caps),
        series=tuple(_series(one, caps, said) for one in report.series[: caps.rows]),
        oom_events=_events(report.oom_events, caps, said),
        culprits=tuple(replace(c, stack=c.stack[: caps.stack]) for c in report.culprits[: caps.culprits]),
        culprits_rest_bytes=report.culprits_rest_bytes + sum(c.bytes for c in cut),
        culprits_rest_blocks=report.culprits_rest_blocks + sum(c.blocks for c in cut),
        memory_summaries=_first(report.memory_summaries, max(caps.rows // 20, 2), "memory_summary tables", said),
        others=tuple(
            _thin(other if i < caps.detailed else _brief(other, said), caps, said)
            for i, other in enumerate(report.others)
        ),
    )
    made: Report = _shorten(shorter, caps.text, said)
    return made


def _brief(report: Report, said: dict[str, None]) -> Report:
    said["Some devices keep only the verdict, the books and the ranking."] = None
    return replace(
        report, timeline=None, steps=None, segment_map=None, whatif=None, series=(), memory_summaries=(), table_notes=()
    )


def _first(rows: tuple[Any, ...], most: int, what: str, said: dict[str, None]) -> tuple[Any, ...]:
    if len(rows) > most:
        said[f"{most:,} of {len(rows):,} {what} are kept."] = None
    return rows[:most]


def _timeline(line: Timeline | None, caps: Caps, said: dict[str, None]) -> Timeline | None:
    if line is None:
        return None
    moment = next((i for i, event in enumerate(line.event) if event >= line.moment), len(line.event) - 1)
    kept = keep(line.active, caps.points, (moment,))
    if line.thinned or len(kept) < len(line.event):
        said[
            f"The timeline shows {len(kept):,} points of {line.events_total:,} events; the highest and lowest of each "
            "stretch are kept."
        ] = None

    def pick(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values[i] for i in kept)

    return replace(
        line,
        event=pick(line.event),
        time_us=None if line.time_us is None else pick(line.time_us),
        active=pick(line.active),
        reserved=pick(line.reserved),
        bands=tuple(replace(band, values=pick(band.values)) for band in line.bands),
        steps=_marks(line.steps, caps.rows),
        ooms=_marks(line.ooms, caps.rows),
        thinned=line.thinned or len(kept) < len(line.event),
    )


def _marks(marks: tuple[Mark, ...], most: int) -> tuple[Mark, ...]:
    return tuple(marks[i] for i in evenly(len(marks), most))


def _steps(steps: Steps | None, caps: Caps, said: dict[str, None]) -> Steps | None:
    if steps is None:
        return None
    kept = evenly(len(steps.rows), caps.rows)
    if len(kept) < steps.total:
        said[f"{len(kept):,} of {steps.total:,} steps are kept, evenly spaced."] = None
    return replace(steps, rows=tuple(steps.rows[i] for i in kept))


def _segments(found: SegmentMap | None, caps: Caps, said: dict[str, None]) -> SegmentMap | None:
    if found is None:
        return None
    kept: list[SegmentBar] = []
    room = caps.pieces
    for segment in found.segments:
        room -= len(segment.pieces)
        if room < 0 and kept:
            break
        kept.append(segment)
    rest = found.segments[len(kept) :]
    dropped = found.dropped + len(rest)
    if dropped:
        said[
            f"The segment map draws {len(kept):,} of {len(kept) + dropped:,} segments, "
            "those with most idle memory first."
        ] = None
    return SegmentMap(tuple(kept), dropped, found.dropped_bytes + sum(segment.size for segment in rest))


def _whatif(whatif: WhatIf | None, caps: Caps) -> WhatIf | None:
    if whatif is None:
        return None

    def run(one: WhatIfRun) -> WhatIfRun:
        kept = keep(one.curve_reserved, caps.points // 4)
        return replace(
            one,
            curve_event=tuple(one.curve_event[i] for i in kept),
            curve_reserved=tuple(one.curve_reserved[i] for i in kept),
        )

    return replace(whatif, runs=tuple(run(one) for one in whatif.runs))


def _series(series: Series, caps: Caps, said: dict[str, None]) -> Series:
    kept = keep(series.values, caps.points // 2)
    if len(kept) < len(series.values):
        said[f"Printed series keep at most {caps.points // 2:,} points."] = None
    return replace(series, steps=tuple(series.steps[i] for i in kept), values=tuple(series.values[i] for i in kept))


def _events(events: tuple[OomEvent, ...], caps: Caps, said: dict[str, None]) -> tuple[OomEvent, ...]:
    most = max(caps.rows // 10, 2)
    if len(events) <= most:
        return events
    said[f"The first and the last {most - 1:,} of {len(events):,} failures are kept."] = None
    return (events[0], *events[-(most - 1) :])


def _shorten(value: Any, most: int, said: dict[str, None]) -> Any:
    """Texts of a value cut to so many characters."""
    if isinstance(value, str):
        if len(value) > most:
            said[f"Texts longer than {most:,} characters are cut."] = None
            return value[: most - 1] + "…"
        return value
    if is_dataclass(value) and not isinstance(value, type):
        changed = {}
        for field in fields(value):
            item = getattr(value, field.name)
            new = _shorten(item, most, said)
            if new is not item:
                changed[field.name] = new
        return replace(value, **changed) if changed else value
    if isinstance(value, tuple):
        if value and isinstance(value[0], int | float):
            return value
        new_items = [_shorten(item, most, said) for item in value]
        if all(new is old for new, old in zip(new_items, value, strict=True)):
            return value
        return type(value)(*new_items) if hasattr(value, "_fields") else tuple(new_items)
    if isinstance(value, dict):
        return {_shorten(key, most, said): _shorten(item, most, said) for key, item in value.items()}
    return value
