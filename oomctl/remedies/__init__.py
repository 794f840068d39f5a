"""The catalogue of settings, code changes and operations, and what goes with what."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oomctl.model.conclusion import Conclusion
    from oomctl.model.report import Report


def advise(conclusion: Conclusion) -> Report:
    """The report with its remedies, ranked; see `oomctl.remedies.choose`."""
    from oomctl.remedies import choose

    return choose.advise(conclusion)
