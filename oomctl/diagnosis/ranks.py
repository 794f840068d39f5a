"""Many ranks concluded as one job: who failed first, who followed, who stands apart and by which lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from oomctl.analysis.frames import label
from oomctl.model.common import Skipped
from oomctl.model.ranks import Digest, Job, Outlier, OutlierPlace, RankRow, Spread, Stage
from oomctl.model.stacks import Frame
from oomctl.units import MIB, format_size

_FEWEST: Final = 3
"""Fewer ranks of a stage than this have no usual value to stand apart from."""
_SHARE: Final = 0.02
"""A rank stands apart only by more than this part of what the median rank holds ..."""
_LEAST: Final = 16 * MIB
"""... and by more than this ..."""
_SPREADS: Final = 6.0
"""... at places where it is more than this many times as far from the median as is usual there."""
_PLACES: Final = 8
_OUTLIERS: Final = 12
_TOGETHER_US: Final = 50_000
"""Failures closer than this cannot be told apart by clocks of several hosts."""

Key = tuple[tuple[str, int, str], ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """Ranks that should be alike: those of one stage."""

    members: tuple[int, ...]


def conclude_job(digests: Sequence[Digest], limits: Sequence[Skipped] = ()) -> Job:
    """One job from what its ranks say; the order in which they arrived does not matter.

    Args:
        digests: One a rank, in order of rank.
        limits: What the gathering of files left aside.
    """
    read = [i for i, d in enumerate(digests) if d.cls]
    failed = [i for i in read if digests[i].failed]
    timed = [i for i in failed if digests[i].time_us is not None]
    first = min(timed, key=lambda i: (digests[i].time_us or 0, i)) if timed else failed[0] if len(failed) == 1 else None
    groups = _groups(digests, read)
    excess = _excess(digests, groups)
    outliers = _outliers(digests, groups)
    apart = {i for i, _ in outliers}
    start = digests[first].time_us if first is not None else None
    rows = tuple(_row(d, i, first, apart, excess.get(i), start, any_failed=bool(failed)) for i, d in enumerate(digests))
    clock = "" if not timed else "trace"
    told = [*limits, *_told(digests, failed, timed, first)]
    found = tuple(outlier for _, outlier in outliers[:_OUTLIERS])
    return Job(
        headline=_headline(digests, rows, first, failed, found),
        ranks=len(digests),
        read=len(read),
        failed=len(failed),
        clock=clock,
        rows=rows,
        outliers=found,
        spreads=_spreads(digests, read),
        stages=_stages(digests, read),
        missing=_missing(digests),
        limits=tuple(told),
    )


def notable(job: Job, most: int = 8) -> list[int]:
    """Rows whose full reports are worth showing: the first failure, who stands apart, a follower.

    Args:
        job: The job.
        most: How many at most.
    """
    names = {outlier.name: place for place, outlier in enumerate(job.outliers)}

    def weight(i: int) -> tuple[int, int, int]:
        row = job.rows[i]
        if row.role == "first":
            return (0, 0, i)
        if row.name in names:
            return (1, names[row.name], i)
        if row.role in ("followed", "failed"):
            return (2, row.lag_us or 0, i)
        return (3, abs(row.excess or 0), i)  # a usual one, to compare with

    ordered = sorted((i for i, row in enumerate(job.rows) if row.cls), key=weight)
    special = [i for i in ordered if weight(i)[0] < 3]
    usual = [i for i in ordered if weight(i)[0] == 3][:1]
    followers = [i for i in special if weight(i)[0] == 2][:2]
    return [i for i in special if weight(i)[0] < 2][: most - 3] + followers + usual


def _groups(digests: Sequence[Digest], read: Sequence[int]) -> list[_Group]:
    """Ranks by pipeline, stage or expert coordinate; data- and tensor-parallel ranks of one stage are alike."""
    found: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for i in read:
        place = tuple((axis, n) for axis, n in digests[i].stage if axis in ("pp", "stage", "ep"))
        found.setdefault(place, []).append(i)
    return [_Group(tuple(members)) for members in found.values()]


def _excess(digests: Sequence[Digest], groups: Sequence[_Group]) -> dict[int, int]:
    found: dict[int, int] = {}
    for group in groups:
        peaks = {i: value for i in group.members if (value := digests[i].peak) is not None}
        if peaks:
            middle = _median(list(peaks.values()))
            found.update({i: value - middle for i, value in peaks.items()})
    return found


def _median(values: Sequence[int]) -> int:
    return round(median(values))


def _outliers(digests: Sequence[Digest], groups: Sequence[_Group]) -> list[tuple[int, Outlier]]:
    """(row, outlier), most bytes apart first."""
    found = []
    for group in groups:
        members = [i for i in group.members if digests[i].held or digests[i].rest]
        if len(members) < _FEWEST:
            continue
        held = {i: {h.frames: h.bytes for h in digests[i].held} for i in members}
        usual, spread = _usual(held)
        least = max(_LEAST, int(_SHARE * sum(usual.values())))
        for i in members:
            above = _above(held[i], usual, spread)
            if sum(above.values()) > least:
                found.append((i, _outlier(digests, group, i, held[i], usual, above)))
    return sorted(found, key=lambda item: (-item[1].excess, item[0]))


def _usual(held: Mapping[int, Mapping[Key, int]]) -> tuple[dict[Key, int], dict[Key, int]]:
    """What the median rank holds at each place, and the usual distance from it.

    A place that fewer than half of the ranks have is usually empty.
    """
    keys = {key for places in held.values() for key in places}
    usual = {key: _median([places.get(key, 0) for places in held.values()]) for key in keys}
    spread = {key: _median([abs(places.get(key, 0) - usual[key]) for places in held.values()]) for key in keys}
    return usual, spread


def _above(places: Mapping[Key, int], usual: Mapping[Key, int], spread: Mapping[Key, int]) -> dict[Key, int]:
    """Bytes above the median at the places where they are far from it."""
    return {key: size - usual[key] for key, size in places.items() if size - usual[key] > _SPREADS * spread[key]}


def _outlier(
    digests: Sequence[Digest],
    group: _Group,
    i: int,
    places: Mapping[Key, int],
    usual: Mapping[Key, int],
    excess: Mapping[Key, int],
) -> Outlier:
    above = sorted(excess.items(), key=lambda item: (-item[1], item[0]))
    peaks = [value for k in group.members if (value := digests[k].peak) is not None]
    rows = tuple(
        OutlierPlace(*(key[0] if key else ("", 0, "(recorded without a stack)")), places[key], usual.get(key, 0), more)
        for key, more in above[:_PLACES]
    )
    one = digests[i]
    return Outlier(
        one.name,
        one.rank,
        one.peak or one.active or 0,
        _median(peaks) if peaks else 0,
        sum(more for _, more in above),
        rows,
    )


def _row(
    digest: Digest, i: int, first: int | None, apart: set[int], excess: int | None, start: int | None, any_failed: bool
) -> RankRow:
    if not digest.cls:
        role = "unreadable"
    elif i == first:
        role = "first"
    elif digest.failed:
        role = "followed" if first is not None and digest.time_us is not None else "failed"
    elif i in apart:
        role = "outlier"
    else:
        role = "stopped" if digest.stopped and any_failed else "healthy"
    lag = digest.time_us - start if digest.failed and digest.time_us is not None and start is not None else None
    return RankRow(
        name=digest.name,
        rank=digest.rank,
        host=digest.host,
        stage=" ".join(f"{axis} {number}" for axis, number in digest.stage),
        role=role,
        cls=digest.cls,
        code=digest.code,
        headline=digest.trouble if not digest.cls else "" if role in ("healthy", "stopped") else digest.headline,
        time_us=digest.time_us,
        lag_us=lag,
        active=digest.active,
        reserved=digest.reserved,
        peak=digest.peak,
        excess=excess,
    )


def _spreads(digests: Sequence[Digest], read: Sequence[int]) -> tuple[Spread, ...]:
    def spread(name: str, of: Callable[[Digest], int | None]) -> list[Spread]:
        values = [(value, i) for i in read if (value := of(digests[i])) is not None]
        if len(values) < 2:
            return []
        (low, a), (high, b) = min(values), max(values, key=lambda item: (item[0], -item[1]))
        return [Spread(name, low, digests[a].name, _median([v for v, _ in values]), high, digests[b].name)]

    return (
        *spread("peak of live memory", lambda d: d.peak),
        *spread("live at its failure or peak", lambda d: d.active),
        *spread("reserved at its failure or peak", lambda d: d.reserved),
    )


def _stages(digests: Sequence[Digest], read: Sequence[int]) -> tuple[Stage, ...]:
    """Every coordinate that ranks differ in, with what its ranks need."""
    found: dict[tuple[str, int], list[int]] = {}
    for i in read:
        if digests[i].peak is not None:
            for place in digests[i].stage:
                found.setdefault(place, []).append(i)
    stages = []
    for axis in sorted({axis for axis, _ in found}):
        places = sorted(place for place in found if place[0] == axis)
        if len(places) < 2:
            continue
        middles = {place: _median([digests[i].peak or 0 for i in found[place]]) for place in places}
        most = max(*middles.values(), 1)
        for place in places:
            top = max(found[place], key=lambda i: (digests[i].peak or 0, -i))
            stages.append(
                Stage(
                    f"{place[0]} {place[1]}", len(found[place]), middles[place], digests[top].peak or 0,
                    digests[top].name, middles[place] / most,
                )
            )  # fmt: skip
    return tuple(stages)


def _missing(digests: Sequence[Digest]) -> tuple[str, ...]:
    """Numbers that nothing was found of, as runs; the highest one is taken for the last."""
    there = sorted({d.rank for d in digests if d.rank is not None})
    if len(there) < 2 or there[-1] > 8 * len(there) + 64:
        return ()
    runs: list[list[int]] = []
    known = set(there)
    for number in range(there[-1]):
        if number in known:
            continue
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return tuple(str(a) if a == b else f"{a}-{b}" for a, b in runs[:100])


def _told(digests: Sequence[Digest], failed: Sequence[int], timed: Sequence[int], first: int | None) -> list[Skipped]:
    told = []
    troubled = [d for d in digests if d.trouble]
    for d in troubled[:20]:
        told.append(Skipped(f"{'' if d.cls else 'anything about '}{d.name}{' in full' if d.cls else ''}", d.trouble))
    if len(troubled) > 20:
        told.append(Skipped(f"{len(troubled) - 20:,} more ranks", "their files could not be read either"))
    if len(timed) < len(failed) and len(failed) > 1:
        told.append(
            Skipped(
                "when some ranks failed",
                f"{len(failed) - len(timed):,} of {len(failed):,} failures carry no time",
                "a trace recorded with torch 2.2 or newer",
            )
        )
    if first is not None and len(timed) > 1:
        times = sorted(digests[i].time_us or 0 for i in timed)
        if times[1] - times[0] < _TOGETHER_US:
            told.append(
                Skipped(
                    "which of the first failures came first",
                    f"they lie {(times[1] - times[0]) / 1000:.1f} ms apart, less than the clocks of hosts may differ",
                )
            )
    return told


def _headline(
    digests: Sequence[Digest],
    rows: Sequence[RankRow],
    first: int | None,
    failed: Sequence[int],
    outliers: Sequence[Outlier],
) -> str:
    total = len(digests)
    if not any(d.cls for d in digests):
        return f"none of the {total:,} ranks could be read"
    if first is not None:
        digest = digests[first]
        followed, untimed = (sum(row.role == role for row in rows) for role in ("followed", "failed"))
        open_ = sum(not d.cls or d.cls == "uncertain" for d in digests)
        stopped = sum(row.role == "stopped" for row in rows)
        what = digest.cls.replace("_", " ")
        who = f"{digest.name} of {total:,}" if digest.rank is not None else f"of {total:,} ranks, {digest.name}"
        text = f"{who} failed first: {what}"
        text += f" at {digest.site}" if digest.site else ""
        last = max((row.lag_us or 0 for row in rows), default=0)
        if followed:
            text += f"; {followed:,} followed within {last / 1e6:.1f} s"
        if untimed:
            text += f"; {untimed:,} more failed, at a time that is not known"
        if total > 1 and not followed and not untimed:
            text += "; no other rank " + ("is known to have run" if open_ else "ran") + " out of memory"
        if stopped:
            text += f", {stopped:,} were stopped by it"
    elif failed:
        text = f"{len(failed):,} of {total:,} ranks ran out of memory, and no clock says which first"
    else:
        text = f"none of the {total:,} ranks ran out of memory"
    for outlier in outliers[:2]:
        place = outlier.places[0] if outlier.places else None
        where = (
            f", most of it at {label(Frame(place.file, place.line, place.function))}" if place and place.file else ""
        )
        less = ", although it holds less than they in all" if outlier.bytes < outlier.median else ""
        text += f"; {outlier.name} holds {format_size(outlier.excess)} that the others do not{where}{less}"
    return text
