"""A `Report` as a person reads it: every number already text, every bar already a ratio; shared by all renderers."""

# ruff: noqa: RUF001 (dashes are meant)
from __future__ import annotations

from typing import Final

from oomctl.model.log import Series
from oomctl.model.report import Contribution, Culprit, Device, HoleBucket, Holes, Remedy, Report, Steps, WhatIf
from oomctl.report.books import build_books
from oomctl.report.tables import build_tables
from oomctl.report.texts import (
    base,
    clean,
    clean_block,
    count,
    percent,
    place,
    plural,
    ratio,
    sentence,
    short_path,
    size,
)
from oomctl.report.view_types import (
    CulpritsView,
    CulpritView,
    Evidence,
    HoleRow,
    HolesView,
    RemedyView,
    RunView,
    SeriesView,
    StepsView,
    StepView,
    View,
    WhatIfView,
)
from oomctl.units import format_size

__all__ = ["CulpritView", "RemedyView", "View", "build_view"]

SEVERITIES: Final = {"no_oom": "ok", "uncertain": "warning"}
ROLES: Final = {
    "leaked": "never freed",
    "peak": "made the peak",
    "requested": "asked for more",
    "pinning": "pins segments",
    "held": "held",
}
APPLICABILITY: Final = {
    "safe": "safe to apply",
    "has_cost": "has a cost",
    "edit_code": "needs an edit",
}
CLASS_TITLES: Final = {
    "fragmentation": "Fragmentation",
    "leak": "Leak",
    "transient_peak": "Transient peak",
    "capacity": "Capacity",
    "external": "Memory outside PyTorch",
    "host_oom": "Host memory",
    "not_an_oom": "Not an out-of-memory error",
    "no_oom": "No failure",
    "uncertain": "Uncertain",
}
CATEGORIES: Final = {"unknown": "not told"}


def build_view(report: Report, places: int | None = None, *, label: str | None = None) -> View:
    """Everything that renderers show, as text and ratios; names from files are made harmless here.

    Args:
        report: What was concluded.
        places: Culprits to show at most; the others join the row that makes the table sum.
        label: What the device is called; of `device_labels` where the report is one of several.
    """
    verdict = report.verdict
    first, *others = device_labels(report)
    return View(
        severity=SEVERITIES.get(verdict.cls, "error"),
        cls=verdict.cls,
        title=CLASS_TITLES.get(verdict.cls, verdict.cls),
        code=clean(verdict.code),
        confidence=verdict.confidence,
        subtype=clean(verdict.subtype or "").replace("_", " "),
        headline=clean(verdict.headline, 1200).rstrip("."),
        context=_context(report),
        facts=_facts(report),
        files=_files(report),
        conf_issues=tuple((clean(i.severity), sentence(clean(i.message, 800))) for i in report.conf_issues),
        books=build_books(
            report.budget,
            _need(report),
            report.request.size if report.request is not None else None,
            failed=verdict.cls != "no_oom",
        ),
        evidence=tuple(
            Evidence(sentence(clean(item.statement, 1200)), tuple((_name(n), number(n, v)) for n, v in item.numbers))
            for item in verdict.evidence
        ),
        contributing=_contributing(report),
        holes=_holes(report.holes),
        steps=_steps(report.steps, failed=verdict.cls != "no_oom"),
        culprits=_culprits(report, places),
        categories=_categories(report),
        remedies=tuple(_remedy(remedy) for remedy in report.remedies),
        whatif=_whatif(report.whatif, verdict.cls),
        tables=build_tables(report.memory_summaries, report.table_notes),
        series=tuple(_series(one) for one in report.series),
        limits=tuple((sentence(clean(s.what)), sentence(clean(s.reason)), clean(s.capture)) for s in report.limits),
        device=label or first,
        fingerprint=clean(report.fingerprint),
        others=tuple(build_view(other, places, label=name) for other, name in zip(report.others, others, strict=True)),
    )


def _contributing(report: Report) -> tuple[tuple[str, str, str], ...]:
    """What else could have served the request; what frees less than was asked for could not."""
    need = (_need(report) or 0) if report.verdict.cls != "uncertain" else 0
    return tuple(_contribution(part) for part in report.verdict.contributing if part.share >= need)


def _contribution(part: Contribution) -> tuple[str, str, str]:
    """(class, its bytes unless the sentence has them, sentence)."""
    share, statement = format_size(part.share), sentence(clean(part.statement, 1200))
    if share in statement:
        share = ""
    elif part.cls == "transient_peak":
        share += " more than usual"
    return part.cls.replace("_", " "), f"({share})" if share else "", statement


def number(name: str, value: int | float) -> str:
    """A number of the evidence as text; its name tells its unit."""
    if name.endswith(("_count", "_steps")):
        return count(value)
    if name.endswith("_ratio"):
        return percent(value)
    if name.endswith("_us"):
        return f"{value / 1e6:,.3f} s"
    return format_size(int(value))


def _name(name: str) -> str:
    for suffix in ("_count", "_ratio", "_us"):
        name = name.removesuffix(suffix)
    return clean(name).replace("_", " ")


def device_name(device: Device) -> str:
    """ "GPU 0 (NVIDIA H200), rank 3"; "host" for memory of the machine."""
    kind = {"cuda": "GPU", "hip": "GPU", "host": "host"}.get(device.backend, clean(device.backend).upper())
    text = kind if device.index is None else f"{kind} {device.index}"
    if device.name:
        text += f" ({clean(device.name, 80)})"
    return text if device.rank is None else f"{text}, rank {device.rank}"


def device_labels(report: Report) -> list[str]:
    """What the device of the report, and those of its others, are called.

    In a job, and where several have the same name, the file of one that tells no rank sets it apart.
    """
    reports = (report, *report.others)
    names = [device_name(one.device) for one in reports]
    if report.job is None and len(set(names)) == len(names):
        return names
    files = _names_apart([one.inputs[0].path if one.inputs and one.device.rank is None else "" for one in reports])
    return [f"{name}, {file}" if file else name for name, file in zip(names, files, strict=True)]


def _need(report: Report) -> int | None:
    request = report.request
    if request is None:
        return None
    return request.segment_size if request.segment_size is not None else request.size


def request_text(report: Report) -> str:
    """The request both as asked and as the allocator rounds it, and who asked; "" without one."""
    request = report.request
    if request is None or (request.size is None and request.segment_size is None):
        return ""
    sizes = [value for value in (request.size, request.segment_size) if value is not None]
    text = format_size(sizes[0])
    if len(sizes) == 2 and format_size(sizes[1]) != text:
        text += f", as a segment {format_size(sizes[1])}"
    if request.pool_id not in (None, (0, 0)):
        text += f", private pool {request.pool_id}"
    return text + (f", by {clean(request.stack_label)}" if request.stack_label else "")


def _context(report: Report) -> tuple[str, ...]:
    parts = [f"confidence {report.verdict.confidence}", device_name(report.device)]
    if report.torch.known:
        parts.append(f"torch {report.torch}")
    names = [name.removeprefix("…/") for name in _names_apart([f.path for f in report.inputs])]
    if names:
        parts.append(" + ".join(names[:3]) + (f" + {len(names) - 3} more" if len(names) > 3 else ""))
    return tuple(parts)


def _names_apart(paths: list[str]) -> list[str]:
    """Names of files, with their folder where two of them are called the same."""
    names = ["stdin" if path == "-" else base(path) for path in paths]
    return [
        clean(short_path(path, 2) if names.count(name) > 1 else name, 60)
        for path, name in zip(paths, names, strict=True)
    ]


def _facts(report: Report) -> tuple[tuple[str, str], ...]:
    budget = report.budget
    facts = [("Device", device_name(report.device))]
    request = request_text(report)
    if request:
        facts.insert(0, ("Request", request))
    if budget is not None and budget.device_total is not None:
        facts.append(("Card", format_size(budget.device_total)))
    if budget is not None and budget.limit is not None:
        why = {"fraction": "memory fraction", "device": "the card less what others held"}.get(
            budget.limit_kind or "", ""
        )
        facts.append(("Limit", format_size(budget.limit) + (f" ({why})" if why else "")))
    facts.append(("torch", str(report.torch)))
    if report.alloc_conf is not None:
        facts.append(("Allocator settings", clean(report.alloc_conf) or "defaults"))
    fatal = len(report.oom_events) - report.recovered_ooms
    if report.oom_events or report.recovered_ooms:
        told = plural(max(fatal, 0), "fatal", "fatal")
        recovered = f", {report.recovered_ooms:,} recovered" if report.recovered_ooms else ""
        facts.append(("Failures", told + recovered))
    facts.append(("oomctl", clean(report.oomctl_version)))
    if report.fingerprint:
        facts.append(("Fingerprint", clean(report.fingerprint)))
    return tuple(facts)


def _files(report: Report) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            "stdin" if f.path == "-" else clean(f.path),
            f"{f.kind.replace('_', ' ')}, {clean(f.format)}, {format_size(f.size)}"
            + (f", sha256 {f.sha256[:16]}…" if f.sha256 else ""),
        )
        for f in report.inputs
    )


def _culprit(c: Culprit) -> CulpritView:
    where, function = place(c.file, c.line, c.function)
    stack = []
    for frame in c.stack:
        at, name = place(frame.file, frame.line, frame.function)
        stack.append((at, name, frame.kind))
    return CulpritView(
        c.rank,
        format_size(c.bytes) if c.bytes or c.role != "requested" else size(None),
        percent(c.share) if c.role != "requested" else "",
        ratio(c.share, 1.0) if c.role != "requested" else 0.0,
        count(c.blocks),
        where or function or "unknown place",
        function if where else "",
        "calls the others" if c.caller else ROLES.get(c.role, c.role),
        "" if c.caller else c.role,
        c.caller,
        c.accumulation_point,
        clean((c.category or "").replace("_", " ")),
        clean_block(c.source, 300).strip("\n") if c.source else "",
        tuple(stack),
    )


def _culprits(report: Report, places: int | None) -> CulpritsView | None:
    if not report.culprits:
        return None
    holding = [c for c in report.culprits if _counts(c)]
    total = sum(c.bytes for c in holding) + report.culprits_rest_bytes
    blocks = sum(c.blocks for c in holding) + report.culprits_rest_blocks
    shown = report.culprits[:places]
    cut = [c for c in report.culprits[len(shown) :] if _counts(c)]
    rest_bytes = report.culprits_rest_bytes + sum(c.bytes for c in cut)
    rest_blocks = report.culprits_rest_blocks + sum(c.blocks for c in cut)
    label = f"+ {plural(len(cut), 'more place')}" if cut else f"+ {plural(rest_blocks, 'more block')}"
    if cut and report.culprits_rest_blocks:
        label += f" and {plural(report.culprits_rest_blocks, 'other block')}"
    rest = None
    if rest_bytes or rest_blocks:
        rest = CulpritView(
            0, format_size(rest_bytes), percent(rest_bytes, total), ratio(rest_bytes, total), count(rest_blocks),
            label if rest_blocks else "everything else", "", "", "", False, False, "", "", (),
        )  # fmt: skip
    return CulpritsView(
        "Who holds it" if holding else "Who asked",
        clean(report.culprits_basis),
        tuple(_culprit(c) for c in shown),
        rest,
        format_size(total) if total else "",
        count(blocks),
    )


def _counts(culprit: Culprit) -> bool:
    """Whether a row is one of those that sum: callers hold what the rows below hold, a request holds nothing yet."""
    return culprit.role != "requested" and not culprit.caller


def _categories(report: Report) -> tuple[tuple[str, str, str, float, str], ...]:
    total = sum(row.bytes for row in report.categories)
    return tuple(
        (
            CATEGORIES.get(row.category, clean(row.category).replace("_", " ")),
            format_size(row.bytes),
            percent(row.bytes, total),
            ratio(row.bytes, total),
            count(row.blocks),
        )
        for row in report.categories
    )


def _holes(holes: Holes | None) -> HolesView | None:
    if holes is None:
        return None
    most = max((bucket.bytes for bucket in holes.buckets), default=0)
    if holes.need is None:
        verdict = f"The largest of {plural(holes.count, 'hole')} is {format_size(holes.largest)}."
    elif holes.largest >= holes.need:
        verdict = f"The largest hole is {format_size(holes.largest)}, enough for the {format_size(holes.need)} needed."
    elif not holes.count:
        verdict = f"There is no hole at all that the request of {format_size(holes.need)} could use."
    else:
        verdict = (
            f"The largest of {plural(holes.count, 'hole')} is {format_size(holes.largest)}; "
            f"the request needs {format_size(holes.need)}."
        )
    rows = tuple(
        HoleRow(f"{_edge(b.low)} – {_edge(b.high)}", count(b.count), format_size(b.bytes), ratio(b.bytes, most), b.fits)
        for b in _filled(holes.buckets)
    )
    title = "Holes" if holes.need is None else "Holes against the request"
    return HolesView(
        title, size(holes.need), format_size(holes.largest), verdict, rows, count(holes.count), size(holes.bytes)
    )


def _filled(buckets: tuple[HoleBucket, ...]) -> tuple[HoleBucket, ...]:
    """Buckets from the first to the last that is not empty."""
    filled = [i for i, bucket in enumerate(buckets) if bucket.count]
    return buckets[filled[0] : filled[-1] + 1] if filled else ()


def _edge(value: int) -> str:
    return format_size(value).replace(".00 ", " ")


def _steps(steps: Steps | None, *, failed: bool) -> StepsView | None:
    if steps is None or not steps.rows:
        return None
    most = max((row.peak for row in steps.rows), default=0)
    rows, before = [], None
    for row in steps.rows:
        change = "" if before is None else signed(row.floor - before)
        before = row.floor
        rows.append(
            StepView(
                clean(row.label, 80),
                format_size(row.floor),
                change,
                format_size(row.peak),
                ratio(row.floor, most),
                ratio(row.peak, most),
                row.warmup,
            )
        )
    name = f" of {clean(steps.name, 80)}" if steps.name else ""
    verdict = f"{plural(steps.total, 'step')}{name}"
    if steps.source == "period":
        verdict += " (found by the period of the allocations)"
    if steps.growth_per_step is not None:
        verdict += f"; {format_size(steps.growth_per_step)} more after each"
    if steps.steps_to_oom is not None and not failed:  # how long it lasted is known
        verdict += f"; at this rate the memory lasts {plural(steps.steps_to_oom, 'step')}"
    return StepsView(verdict + ".", tuple(rows))


def signed(value: int) -> str:
    """A difference with its sign; "0" for none."""
    return "0" if value == 0 else ("+" if value > 0 else "−") + format_size(abs(value))


def _remedy(remedy: Remedy) -> RemedyView:
    return RemedyView(
        sentence(clean(remedy.title)).rstrip("."),
        {"alloc_conf": "setting", "code": "code", "operations": "operation"}.get(remedy.kind, clean(remedy.kind)),
        APPLICABILITY.get(remedy.applicability, clean(remedy.applicability)),
        remedy.applicability,
        clean(remedy.env or ""),
        sentence(clean(remedy.why, 1200)),
        tuple(sentence(clean(caveat, 800)) for caveat in remedy.caveats),
        _replay(remedy),
        clean(remedy.location) if remedy.location and remedy.location not in remedy.title else "",
        clean_block(remedy.example) if remedy.example else "",
    )


def _replay(remedy: Remedy) -> str:
    effect = remedy.replay
    if effect is None:
        return ""
    parts = []
    if effect.peak_reserved is not None:
        before = f"{format_size(effect.peak_reserved_before)} → " if effect.peak_reserved_before is not None else ""
        parts.append(f"peak reserved {before}{format_size(effect.peak_reserved)}")
    if effect.served is not None:
        parts.append("the failing request is served" if effect.served else "the failing request still fails")
    guess = effect.certainty == "estimate"
    text = ("estimated: " if guess else "replayed: ") + ", ".join(parts or ["no effect could be told"])
    if effect.identity is not None and not guess:
        i = effect.identity
        text += f"; the replay reproduces {i.exact:,} of {i.allocs:,} recorded placements"
    if effect.certainty not in ("firm", "estimate"):
        text += f" ({clean(effect.certainty, 40)})"
    return text + "".join(f"; {clean(note)}" for note in effect.notes)


def _whatif(whatif: WhatIf | None, cls: str) -> WhatIfView | None:
    if whatif is None or not whatif.runs:
        return None
    most = max((run.peak_reserved or 0 for run in whatif.runs), default=0)
    rows = tuple(
        RunView(
            clean(run.alloc_conf) or "defaults",
            size(run.peak_reserved),
            ratio(run.peak_reserved, most),
            size(run.peak_allocated),
            {True: "served", False: "fails", None: "open"}[run.served],
            {True: "yes", False: "no", None: "open"}[run.served],
            count(run.retries),
            count(run.device_allocs),
            size(run.smallest_limit),
            clean(run.certainty, 40),
            tuple(sentence(clean(note)) for note in run.notes),
        )
        for run in whatif.runs
    )
    i = whatif.identity
    identity = f"Replayed under its own settings, the trace gives {i.exact:,} of {i.allocs:,} recorded placements"
    identity += f" and {i.segments_exact:,} of {i.segments:,} segment events" if i.segments else ""
    identity += f" ({clean(i.reason)})" if i.reason else ""
    notes = [sentence(clean(note)) for note in whatif.notes]
    if not whatif.complete:
        notes.append("Some settings were not replayed for want of time.")
    limit = size(whatif.limit) if whatif.limit is not None else ""
    return WhatIfView(identity + ".", limit, rows, _settings_verdict(whatif, cls), tuple(notes))


def _settings_verdict(whatif: WhatIf, cls: str) -> str:
    """Whether any setting that was tried helps, "" where that is open."""
    helps = sum(run.served is True for run in whatif.runs)
    tried = plural(len(whatif.runs), "setting")
    if helps:
        text = f"{helps:,} of {tried} replayed would have served the failing request"
        return text + ("; what grows would have filled the memory a little later." if cls == "leak" else ".")
    if all(run.served is False for run in whatif.runs):
        return f"No allocator setting helps: of {tried} replayed, none serves the failing request."
    return ""


def _series(series: Series) -> SeriesView:
    name = clean(series.name, 120)
    if not series.values:
        return SeriesView(name, "no points", ())
    first, last, points = series.values[0], series.values[-1], len(series.values)
    text = f"{plural(points, 'point')}: {format_size(first)} at first, {format_size(last)} at last"
    text += f", between {format_size(min(series.values))} and {format_size(max(series.values))}"
    if points > 1 and series.steps[-1] > series.steps[0]:
        text += f"; {signed(round((last - first) / (points - 1)))} a point on average"
    if series.meaning != "unknown":
        name += f" ({series.meaning})"
    shown = tuple((count(s), format_size(v)) for s, v in zip(series.steps, series.values, strict=False))
    return SeriesView(name, text + ".", shown)
