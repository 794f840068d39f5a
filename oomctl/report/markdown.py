"""The report as a comment for GitHub, GitLab or Jira; text from files can never become markup, a mention or a link."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from oomctl.model.report import Report
from oomctl.report import ranks
from oomctl.report.base import Options
from oomctl.report.redact import DESCRIPTIONS, redact
from oomctl.report.texts import clean, place, sentence, short_path, size, visible
from oomctl.report.thin import FULL, Caps, evenly, thin
from oomctl.report.view import CulpritView, RemedyView, View, build_view

LIMIT: Final = 60_000
"""Characters: GitHub refuses comments above 65,536."""
_SPECIAL: Final = re.compile(r"([\\`*_{}\[\]#!|~$^])")
_GLUE: Final = "\u2060"
"""Word joiner, invisible; breaks what would become a mention, a reference or a link after rendering."""


class MarkdownRenderer:
    """A comment with folded sections."""

    name = "markdown"
    suffixes: tuple[str, ...] = (".md", ".markdown")
    redacts = "paths"

    def render(self, report: Report, options: Options) -> str:
        """See `render_markdown`."""
        return render_markdown(report, options.redact or self.redacts)


def render_markdown(report: Report, mode: str = "none", limit: int = LIMIT) -> str:
    """A comment of fewer than `limit` characters; rows are thinned until it fits.

    Args:
        report: What was concluded.
        mode: Redaction, "paths", "all" or "none".
        limit: Characters.
    """
    caps, rows = replace(FULL.shared(1 + len(report.others)), text=300), 24
    for _ in range(8):
        text = _comment(report, caps, rows, mode)
        if len(text) < limit:
            break
        caps, rows = caps.harder(), max(rows // 2, 3)
    return text if len(text) < limit else text[: limit - 80].rsplit("\n", 1)[0] + "\n\nThe rest is cut.\n"


def escape(text: str) -> str:
    """Prose that may hold anything: what is special is escaped, and mentions, references and links are broken up."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # Forges look for these after rendering, where a backslash is gone already; an invisible joiner stays.
    text = re.sub(r"([@#!$%~^]|\b(?:GH|www)[-.])(?=\w)", rf"\1{_GLUE}", text)
    text = re.sub(r"(?i)\b(https?|ftp|file|mailto):", rf"\1{_GLUE}:", text)
    text = re.sub(r":(?=[\w+-]+:)", f":{_GLUE}", text)
    text = _SPECIAL.sub(r"\\\1", text)
    # What would begin a list, a heading or a rule.
    return re.sub(r"^(\s*)(?:(\d+)([.)])(?=\s|$)|([-+=]))", _begin, text)


def _begin(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2] or ''}\\{found[3] or found[4]}"


def code(text: str, table: bool = False) -> str:
    """A code span that no backtick of the text can end."""
    if not text:
        return ""
    text = visible(text)
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    span = f"{fence}{pad}{text}{pad}{fence}"
    return span.replace("|", "\\|") if table else span


def block(text: str, language: str = "") -> str:
    """A code block that no line of the text can end."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(longest + 1, 3)
    return f"{fence}{language}\n{text}\n{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int]) -> str:
    """A table whose cells are escaped already."""
    rule = ["--:" if i in right else "---" for i in range(len(head))]
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, rule, *rows))


def _comment(report: Report, caps: Caps, rows: int, mode: str) -> str:
    thinned, _ = thin(report, caps)
    view = build_view(redact(thinned, mode), min(rows, 8))
    parts = [*_job(thinned, min(rows, 16), mode), *_device(view, rows)]
    for other in view.others[: 2 * rows]:
        parts.append(f"**{escape(other.device)}** {escape(other.cls)}: {escape(other.headline)}")
    if len(view.others) > 2 * rows:
        parts.append(f"{len(view.others) - 2 * rows} more devices are not shown.")
    parts.append(f"<sub>oomctl {escape(report.oomctl_version)}; names: {DESCRIPTIONS[mode]}</sub>")
    return "\n\n".join(part for part in parts if part) + "\n"


def _job(report: Report, rows: int, mode: str) -> list[str]:
    job = redact(report, mode).job
    if job is None:
        return []
    views = ranks.row_views(job)
    kept, counts = ranks.chosen(job, rows)
    cells = [
        (escape(v.name), v.word, v.when, v.peak, v.excess, escape(v.stage), escape(v.what))
        for v in (views[i] for i in kept)
    ]
    if counts:
        cells.append((escape(ranks.left_words(counts)), "", "", "", "", "", ""))
    parts = [f"### {escape(sentence(clean(job.headline, 1000)))}", escape(ranks.missing_words(job))]
    parts.append(table(("Rank", "", "When", "Peak live", "vs median", "Stage", "Verdict"), cells, (2, 3, 4)))
    for outlier in job.outliers[:3]:
        lines = [
            (
                size(p.excess),
                size(p.bytes),
                size(p.median),
                code(" ".join(place(p.file, p.line, p.function)).strip(), True),
            )
            for p in outlier.places[:4]
        ]
        parts.append(escape(sentence(ranks.outlier_words(outlier))))
        parts.append(table(("More", "It holds", "Median", "Where"), lines, (0, 1, 2)))
    return parts


def _device(view: View, rows: int) -> list[str]:
    parts = [
        f"### {view.severity} {code(view.code)} {escape(view.title)}: {escape(view.headline)}",
        escape(" · ".join(view.context)),
        "\n".join(f"{i}. {escape(item.statement)}" for i, item in enumerate(view.evidence, 1)),
        "\n".join(
            f"- also **{escape(cls)}** {share}".rstrip() + (f": {escape(said)}" if said else "")
            for cls, share, said in view.contributing
        ),
    ]
    parts += _books(view)
    parts += _culprits(view)
    parts.append("\n".join(f"- settings in force, {escape(how)}: {escape(said)}" for how, said in view.conf_issues))
    if view.remedies:
        parts.append("**What to do**")
        none = view.whatif is not None and view.whatif.verdict.startswith("No ")
        if none and view.whatif is not None:
            parts.append(escape(view.whatif.verdict))
        parts += [_remedy(number, remedy) for number, remedy in enumerate(view.remedies[:rows], 1)]
    if view.limits:
        lines = [f"- {escape(what)} {escape(why)}" + (f" {code(how)}" if how else "") for what, why, how in view.limits]
        parts += ["**What could not be told**", "\n".join(lines[:rows])]
    parts += _folded(view, rows)
    return parts


def _books(view: View) -> list[str]:
    books = view.books
    if books is None:
        return []
    rows = [(row.label, row.text, row.share) for row in books.rows]
    rows.append((f"**{books.whole}**", f"**{books.total}**", "100.0%"))
    head = (f"The books: {books.title}", "Bytes", "Share")
    return [table(head, rows, (1, 2)), " ".join(escape(note) for note in books.notes)]


def _culprits(view: View) -> list[str]:
    culprits = view.culprits
    if culprits is None:
        return []

    def where(row: CulpritView) -> str:
        path, colon, line = row.where.rpartition(":")
        near = short_path(path) + colon + line if colon else row.where
        mark = " **accumulation point**" if row.accumulation else ""
        return f"{code(f'{near} {row.function}'.strip(), True)} {row.role}{mark}"

    rows = [(row.bytes, row.share, row.blocks, where(row)) for row in culprits.rows]
    if culprits.rest is not None:
        rows.append((culprits.rest.bytes, culprits.rest.share, culprits.rest.blocks, culprits.rest.where))
    if culprits.total:
        rows.append((f"**{culprits.total}**", "100.0%", culprits.total_blocks, "**all**"))
    basis = culprits.title + (f": {escape(culprits.basis)}" if culprits.basis else "")
    return [table(("Bytes", "Share", "Blocks", basis), rows, (0, 1, 2))]


def _remedy(number: int, remedy: RemedyView) -> str:
    parts = [f"{number}. **{escape(remedy.title)}** ({escape(remedy.kind)}, {escape(remedy.applicability)})"]
    if remedy.location:
        parts.append(f"at {code(remedy.location)}")
    parts.append(escape(remedy.why))
    if remedy.paste:
        parts.append(block(remedy.paste, "sh"))
    if remedy.example:
        parts.append(block(remedy.example))
    parts.append(escape(remedy.replay))
    parts += [f"- {escape(caveat)}" for caveat in remedy.caveats]
    text = "\n\n".join(part for part in parts if part)
    # What belongs to an entry of a list is indented below it.
    return text.replace("\n", "\n   ").replace("\n   \n", "\n\n")


def _fold(title: str, *parts: str) -> str:
    return f"<details><summary>{title}</summary>\n\n" + "\n\n".join(part for part in parts if part) + "\n\n</details>"


def _folded(view: View, rows: int) -> list[str]:
    parts = []
    if view.holes is not None and view.holes.rows:
        cells = [(row.range, row.count, row.bytes, "fits" if row.fits else "") for row in view.holes.rows]
        cells.append(("**all**", view.holes.total_count, view.holes.total_bytes, ""))
        parts.append(
            _fold(
                view.holes.title,
                view.holes.verdict,
                table(("Size", "Count", "Bytes", ""), cells, (1, 2)),
            )
        )
    if view.steps is not None:
        kept = [view.steps.rows[i] for i in evenly(len(view.steps.rows), 2 * rows)]
        steps = [(escape(s.label), s.floor, s.change, s.peak) for s in kept]
        parts.append(
            _fold(
                "Steps", escape(view.steps.verdict), table(("Step", "At its start", "Change", "Peak"), steps, (1, 2, 3))
            )
        )
    if view.culprits is not None and any(row.stack for row in view.culprits.rows):
        stacks = [
            f"{row.bytes} {code(f'{row.where} {row.function}')}\n\n"
            + block("\n".join(f"{at} {name}".strip() for at, name, _ in row.stack[: 2 * rows]))
            for row in view.culprits.rows
            if row.stack
        ]
        parts.append(_fold("Stacks", *stacks))
    if view.whatif is not None:
        runs = [
            (code(run.conf, True), run.served, run.peak_reserved, run.peak_allocated, escape(run.certainty))
            for run in view.whatif.rows
        ]
        columns = ("Setting", "The request", "Peak reserved", "Peak live", "Certainty")
        parts.append(_fold("Under other settings", escape(view.whatif.identity), table(columns, runs, (2, 3))))
    for summary in view.tables[: max(rows // 8, 1)]:
        lines = [(code(row.metric, True), *row.cells, escape(row.note)) for row in summary.rows if not row.pool]
        head = ("Metric", "Now", "Peak", "Allocated in all", "Freed in all", "")
        parts.append(_fold(escape(summary.title), escape(summary.facts), table(head, lines, (1, 2, 3, 4))))
    if view.series:
        parts.append(
            _fold("Printed series", *(f"{code(one.name)} {escape(one.summary)}" for one in view.series[:rows]))
        )
    facts = [(escape(name), code(text, True)) for name, text in view.facts]
    facts += [(code(path, True), code(about, True)) for path, about in view.files[:rows]]
    parts.append(_fold("For the ticket", table(("", ""), facts, ())))
    return parts
