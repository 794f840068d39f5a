"""The report as plain text for a mail: the terminal's lines without colour."""

from __future__ import annotations

from oomctl.model.report import Report
from oomctl.report.base import Options
from oomctl.report.redact import redact
from oomctl.report.terminal import render_terminal


class TextRenderer:
    """Plain text that quotes well."""

    name = "text"
    suffixes: tuple[str, ...] = (".txt",)
    redacts = "paths"

    def render(self, report: Report, options: Options) -> str:
        """The terminal report at the given width, without colour."""
        report = redact(report, options.redact or self.redacts)
        return render_terminal(report, width=options.width, verbose=options.verbose, unicode=options.unicode)
