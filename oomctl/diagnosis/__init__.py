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

    Raises:
        OomctlError: All that there is is a snapshot that holds nothing.
    """
    if any(snapshot.devices for snapshot in evidence.snapshots):
        from oomctl.diagnosis.from_snapshot import conclude_snapshots

        return conclude_snapshots(evidence, user_roots, whatif, progress)
    if evidence.snapshots:
        evidence = _without_snapshots(evidence)
    from oomctl.diagnosis.from_text import conclude_text

    return conclude_text(evidence)


def _without_snapshots(evidence: Evidence) -> Evidence:
    """The rest of an incident whose snapshots hold nothing.

    Raises:
        OomctlError: There is nothing else.
    """
    from dataclasses import replace

    from oomctl.errors import OomctlError
    from oomctl.model.common import Skipped

    empty = "not one segment or event of a device is in it, or can be read"
    hint = "dump in the process that uses the GPU, and before _record_memory_history(enabled=None)"
    if all(given.kind == "snapshot" for given in evidence.inputs):
        raise OomctlError(f"an empty memory snapshot: {empty}", hint)
    found = (s for snapshot in evidence.snapshots for s in snapshot.skipped)
    return replace(evidence, snapshots=(), skipped=(*evidence.skipped, *found, Skipped("the snapshot", empty, hint)))
