"""Concludes an incident of which there is only text: the best honest verdict that it allows."""

from __future__ import annotations

from dataclasses import dataclass, field

from oomctl import __version__
from oomctl.diagnosis import text_signs, text_stack, text_tables
from oomctl.diagnosis.codes import code_for
from oomctl.diagnosis.table_rows import notes
from oomctl.diagnosis.text_opinion import SERIES, Context, Opinion, item, size
from oomctl.diagnosis.text_picture import ORDINARY_CONTEXT, Picture, picture, steps_before, table_for, trial
from oomctl.diagnosis.text_rules import weigh
from oomctl.diagnosis.text_series import Growth, strongest, table_series
from oomctl.model.common import Skipped, VersionRange
from oomctl.model.conclusion import Conclusion, Facts
from oomctl.model.evidence import Evidence
from oomctl.model.log import OomEvent
from oomctl.model.report import Budget, Culprit, Device, Report, Request, TableNote, Verdict


@dataclass(frozen=True, slots=True)
class TextConclusion:
    """What text allows to conclude.

    Attributes:
        verdict: With its evidence.
        event: The failure that it is about, or None.
        budget: The books as far as the message gives them, or None.
        request: The request that failed, or None.
        culprits: The innermost user frame of the traceback, library frames folded.
        limits: What could not be told, and what would tell it.
        table_notes: Remarks on memory_summary rows.
        facts: What the choice of a remedy needs.
    """

    verdict: Verdict
    event: OomEvent | None = None
    budget: Budget | None = None
    request: Request | None = None
    culprits: tuple[Culprit, ...] = ()
    limits: tuple[Skipped, ...] = ()
    table_notes: tuple[TableNote, ...] = ()
    facts: Facts = field(default_factory=Facts)


NUMBERLESS = frozenset(
    {
        "more_than_1EB",
        "single_block_limit",
        "cuda_error_oom",
        "driver_oom",
        "thc_oom",
        "nccl_alloc",
        "cublas_alloc_failed",
        "cudnn_alloc_failed",
        "cusolver_alloc_failed",
        "nvml_assert",
        "async_message_cut",
        "level_zero_oom",
        "exception_name",
        "said_oom",
        "message_cut",
        *text_signs.OTHER_BOOKS,
    }
)
"""Wordings without the caching allocator's figures."""


def conclude(evidence: Evidence) -> TextConclusion:
    """The verdict on the first failure that the program did not survive, or on what else the text shows.

    Args:
        evidence: What the inputs prove; snapshots in it are not looked at.
    """
    event = primary(evidence)
    shown: Picture | None = None
    if event is not None and event.backend != "host" and event.wording not in NUMBERLESS:
        shown = picture(event, table_for(event, evidence))
    opinion = _opinion(event, shown, evidence)
    verdict = Verdict(
        opinion.cls,
        opinion.subtype,
        code_for(opinion.cls, opinion.subtype),
        opinion.confidence,
        opinion.headline,
        opinion.evidence,
        opinion.contributing,
    )
    limits = (*opinion.limits, *_limits(event, shown, evidence), *evidence.skipped)
    return TextConclusion(
        verdict,
        event,
        _budget(shown) if shown is not None else None,
        _request(event),
        text_stack.culprits(event) if event is not None else (),
        tuple(dict.fromkeys(limits)),
        notes(evidence.memory_summaries),
        _facts(event, shown, opinion, evidence),
    )


def conclude_text(evidence: Evidence) -> tuple[Conclusion, ...]:
    """As `conclude`, in the shape that every diagnosis has.

    Args:
        evidence: What the inputs prove.
    """
    found = conclude(evidence)
    event = found.event
    report = Report(
        oomctl_version=__version__,
        inputs=evidence.inputs,
        device=Device(
            backend=found.facts.backend,
            index=event.gpu if event is not None else None,
            rank=event.rank if event is not None else None,
        ),
        verdict=found.verdict,
        torch=evidence.torch,
        alloc_conf=evidence.conf,
        request=found.request,
        oom_events=evidence.oom_events,
        recovered_ooms=sum(e.recovered for e in evidence.oom_events),
        memory_summaries=evidence.memory_summaries,
        table_notes=found.table_notes,
        series=evidence.series,
        budget=found.budget,
        culprits=found.culprits,
        culprits_basis="the request that failed" if found.culprits else "",
        limits=found.limits,
    )
    return (Conclusion(report, found.facts),)


def primary(evidence: Evidence) -> OomEvent | None:
    """The failure that the report is about: the first that was not survived, one with figures before one without."""
    events = evidence.oom_events
    fatal = [e for e in events if not e.recovered] or list(events)
    figured = [e for e in fatal if e.wording not in NUMBERLESS and e.backend != "host"]
    host = [e for e in fatal if e.backend == "host"]
    return next(iter(figured or host or fatal), None)


def _opinion(event: OomEvent | None, shown: Picture | None, evidence: Evidence) -> Opinion:
    grows, settles = strongest((*evidence.series, *table_series(evidence.memory_summaries)))
    if shown is not None and event is not None:
        context = _context(event, evidence)
        opinion = weigh(shown, context)
        if (
            grows is not None
            and grows.series.meaning != "host"
            and opinion.cls in ("capacity", "uncertain", "transient_peak")
        ):
            return _growth(grows, opinion)
        return opinion
    host = text_signs.host(evidence)
    if host is not None and (event is None or event.backend == "host" or host.confidence == "high"):
        return host
    if event is not None:
        if grows is not None and grows.series.meaning != "host":
            return _growth(grows, None)
        return text_signs.no_figures(event, _context(event, evidence))
    server = text_signs.servers(evidence)
    if server is not None:
        return server
    if grows is not None:
        return _growth(grows, None)
    table = text_tables.alone(evidence)
    if table is not None:
        return table
    other = text_signs.not_memory(evidence)
    if other is not None:
        return other
    if settles is not None:
        return _plateau(settles)
    return _shared_card(evidence) or _nothing(evidence)


def _context(event: OomEvent, evidence: Evidence) -> Context:
    return Context(
        evidence,
        text_stack.phase(event),
        text_stack.makes_large(event),
        text_stack.makes_copy(event),
        steps_before(event, evidence),
        trial(evidence),
        sum(e.recovered for e in evidence.oom_events),
    )


def _growth(g: Growth, other: Opinion | None) -> Opinion:
    s = g.series
    host = s.meaning == "host"
    whose = "Host memory" if host else "Memory"
    statement = item(
        f"`{s.name}` rises from {size(s.values[0])} to {size(s.values[-1])} over {len(s.values)} prints, "
        f"{size(round(g.late_per_step))} a step in the second half",
        first=s.values[0],
        last=s.values[-1],
        growth=g.total,
        points_count=len(s.values),
    )
    sure = len(s.values) >= 6 and g.late_per_step >= 0.5 * g.per_step
    return Opinion(
        "leak",
        None,
        "medium" if sure else "low",
        f"{whose} grows by {size(round(g.per_step))} a step and does not come back: {size(g.total)} over the prints "
        f"shown",
        (statement, *(other.evidence if other is not None else ())),
        other.contributing if other is not None else (),
        (
            Skipped(
                "what keeps the memory", "a series shows how much, not what", "a snapshot with stacks over a few steps"
            ),
        ),
    )


def _plateau(g: Growth) -> Opinion:
    s = g.series
    return Opinion(
        "not_an_oom",
        None,
        "low",
        f"`{s.name}` settles at {size(s.values[-1])}: a warm-up, not a leak, and nothing failed",
        (
            item(
                f"It changes by {size(round(g.late_per_step))} a step in the second half, {size(round(g.per_step))} "
                f"overall",
                last=s.values[-1],
                points_count=len(s.values),
            ),
        ),
    )


def _shared_card(evidence: Evidence) -> Opinion | None:
    for table in reversed(evidence.smi):
        gpus = {p.gpu for p in table.processes if p.gpu is not None}
        for gpu in sorted(gpus):
            mine = [p for p in table.processes if p.gpu == gpu and (p.used or 0) >= 100 << 20]
            if len(mine) >= 2:
                used = sum(p.used or 0 for p in mine)
                return Opinion(
                    "external",
                    "other_processes",
                    "low",
                    f"{len(mine)} processes share GPU {gpu} and hold {size(used)} together; the text shows no failure",
                    tuple(item(f"Process {p.pid} {p.name}: {size(p.used)}", used=p.used) for p in mine[:6]),
                    limits=(Skipped("which of them failed", "there is no error message", "the whole error message"),),
                )
    return None


def _nothing(evidence: Evidence) -> Opinion:
    if evidence.tracebacks:
        return Opinion("not_an_oom", None, "low", "The traceback ends in no memory failure", ())
    if evidence.series:
        return Opinion(
            "uncertain",
            None,
            "low",
            "Memory figures without a failure and without a clear trend",
            (),
            limits=(Skipped("growth", "too few points, or no line fits them", SERIES),),
        )
    return Opinion("no_oom", None, "low", "No memory failure is in this text", ())


def _limits(event: OomEvent | None, shown: Picture | None, evidence: Evidence) -> tuple[Skipped, ...]:
    out = []
    if shown is not None and event is not None:
        if (
            shown.outside is not None
            and shown.outside > ORDINARY_CONTEXT
            and shown.others is None
            and event.backend == "cuda"
        ):
            out.append(
                Skipped(
                    "whether memory outside the allocator is this process's or another's",
                    "the message has no figure for this process (older torch, Windows, or a container)",
                    "nvidia-smi at the failure",
                )
            )
        if shown.table is None and any((t.num_ooms or 0) == 0 for t in evidence.memory_summaries):
            out.append(
                Skipped("the table beside the message", "it counts no OOM: it is from another device, run or moment")
            )
    fatal = [e for e in evidence.oom_events if not e.recovered]
    if len(fatal) > 1 and event is not None:
        others = len(fatal) - 1
        out.append(
            Skipped(
                f"{others} other failure{'s' if others > 1 else ''}",
                "the verdict is about the first; later ones are often its consequence",
            )
        )
    return tuple(out)


def _budget(p: Picture) -> Budget:
    shortage = None
    if p.request is not None and p.room is not None:
        shortage = max(p.request - p.room, 0)
    closes = p.total is not None and p.free is not None and p.reserved is not None and p.outside is not None
    split_outside = p.others is not None and p.non_pytorch is not None
    unexplained = None
    if closes and p.event.backend != "mps":
        known = (p.others or 0) + (p.non_pytorch or 0) if split_outside else p.outside or 0
        unexplained = (p.total or 0) - known - (p.reserved or 0) - (p.free or 0)
    return Budget(
        device_total=p.total,
        limit=p.limit if p.capped or p.limit is None else p.limit - (p.outside or 0),
        limit_kind="fraction" if p.capped else "device" if p.limit is not None else None,
        other_processes=p.others if split_outside else None,
        non_pytorch=p.non_pytorch if split_outside else None,
        outside=None if split_outside else p.outside,
        free=p.free,
        unexplained=unexplained,
        reserved=p.reserved,
        allocated=p.live,
        idle_split=p.idle,
        idle_private_pools=p.pools,
        shortage=shortage,
        source="message",
    )


def _request(event: OomEvent | None) -> Request | None:
    if event is None or event.tried_to_allocate is None:
        return None
    return Request(segment_size=event.tried_to_allocate, stack_label=text_stack.site_label(event))


def _facts(event: OomEvent | None, shown: Picture | None, opinion: Opinion, evidence: Evidence) -> Facts:
    if event is None:
        backend = "host" if opinion.cls == "host_oom" else "cuda"
        hints = _hints(evidence)
        if opinion.cls == "not_an_oom" and not (evidence.tracebacks or any(h in text_signs.NOT_MEMORY for h in hints)):
            hints = (*hints, "nothing_failed")
        return Facts(backend=backend, torch=evidence.torch, conf=evidence.conf, hint=hints)
    torch = event.torch & evidence.torch if evidence.torch.known else event.torch
    return Facts(
        backend="host" if opinion.cls == "host_oom" else event.backend,
        torch=torch if torch.known else VersionRange(),
        conf=evidence.conf,
        phase=text_stack.phase(event),
        operation=text_stack.operation(event),
        site=text_stack.site_label(event),
        functions=tuple(dict.fromkeys(f.name for f in event.traceback)),
        hint=(*_hints(evidence), *(_of_figures(shown) if shown is not None else ())),
    )


def _of_figures(p: Picture) -> tuple[str, ...]:
    """What the figures say about the remedy whatever the verdict is."""
    told = {
        "larger_than_limit": p.request is not None and p.limit is not None and p.request > p.limit,
        # Without the cap, the card had room: to raise it is a way out that no change of code is.
        "own_cap": p.capped and p.request is not None and p.free is not None and p.free > p.request,
    }
    return tuple(name for name, holds in told.items() if holds)


def _hints(evidence: Evidence) -> tuple[str, ...]:
    """Frameworks that the tracebacks pass through, and kinds of signs."""
    names = (
        "vllm",
        "sglang",
        "deepspeed",
        "transformers",
        "lightning",
        "accelerate",
        "diffusers",
        "fairseq",
        "megatron",
    )
    files = " ".join(f.filename for e in evidence.oom_events for f in e.traceback)
    frameworks = [name for name in names if name in files.lower()]
    signs = [s.kind for s in evidence.signs if s.kind not in ("progress", "loading")]
    return tuple(dict.fromkeys((*frameworks, *signs)))
