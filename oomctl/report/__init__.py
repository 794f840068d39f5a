"""A `Report` into terminal text, HTML, markdown and JSON."""

from __future__ import annotations

from typing import Any

from oomctl.model.report import Report

__all__ = ["render"]


def render(report: Report, fmt: str = "terminal", **options: Any) -> str:
    """A report in one of the formats; see `oomctl.report.registry.render`."""
    from oomctl.report import registry

    return registry.render(report, fmt, **options)
