"""One detector a class, the weighing, culprit ranking."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oomctl.progress import Progress, silent

if TYPE_CHECKING:
    from oomctl.model.conclusion import Conclusion
    from oomctl.model.evidence import Evidence


def conclude(
    evidence: Evidence, *, user_roots: tuple[str, ...] = (), whatif: bool = True, progress: Progress = silent
) -> tuple[Conclusion, ...]:
    """Concludes an incident, one conclusion a device or rank; the failing ones come first.

    Args:
        evidence: What the inputs prove.
        user_roots: Path prefixes whose files count as the user's own code.
        whatif: Replay the trace under other settings; the verdict on fragmentation draws on it.
        progress: Called with what is being done and the share done, 0 to 1.
    """
    if evidence.snapshots:
        from oomctl.diagnosis.from_snapshot import conclude_snapshots

        return conclude_snapshots(evidence, user_roots, whatif, progress)
    from oomctl.diagnosis.from_text import conclude_text

    return conclude_text(evidence)
