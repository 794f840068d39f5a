"""A script for a bug report: the recorded requests, or the fewest of them that fail the same way."""

from __future__ import annotations

from collections.abc import Callable

from oomctl.allocator.limits import Limits
from oomctl.allocator.selftest import read_recording
from oomctl.errors import OomctlError
from oomctl.exports.base import Job, Judge, trace_of
from oomctl.exports.repro.pattern import Pattern, limits_of, read_pattern, with_limit
from oomctl.exports.repro.reduce import reduced
from oomctl.exports.repro.script import script_of
from oomctl.exports.repro.simulate import fails, recorded
from oomctl.model.alloc_conf import format_conf
from oomctl.model.evidence import Evidence


class Reproducer:
    """A self-contained script that needs torch and a GPU, tested by replay before it is written."""

    name = "repro"
    suffixes = (".py",)
    what = "A script that makes the same requests of a GPU and fails the same way; --reduce keeps only what that needs."

    def write(self, job: Job, path: str) -> tuple[str, ...]:
        """Finds a limit under which the replay fails where the recording did, and writes the script."""
        pattern, known = faithful(job)
        remarks = [f"{pattern.requests:,} requests, {len(pattern.table):,} steps"]
        found = known if job.judge is None else job.judge(Evidence(snapshots=(recorded(pattern),)))
        same = found == known
        if job.reduce:
            before = pattern.requests
            agrees = _agreeing(job.judge, known) if job.judge is not None and same else None
            pattern = reduced(pattern, fails, agrees, progress=job.progress)
            remarks[0] = f"{pattern.requests:,} of {before:,} requests are enough, {len(pattern.table):,} steps"
        remarks.append("replayed, the script fails at the same request")
        if known:
            remarks.append(
                f"the verdict on what it would record is the same: {known}"
                if same
                else f"the verdict on what it would record is {found}, not {known}: requests alone do not show why"
            )
        text = script_of(pattern, (*remarks, *pattern.notes))
        with open(path, "w", encoding="ascii", newline="\n") as stream:
            stream.write(text)
        return (*remarks, *pattern.notes)


def faithful(job: Job) -> tuple[Pattern, str]:
    """The pattern under a limit at which it fails as recorded, and the class of the recorded failure.

    Raises:
        OomctlError: Nothing failed, or no limit makes the replay fail there and not before.
    """
    snapshot, device = job.chosen()
    trace_of(device)
    known = job.evidence.torch & snapshot.torch
    torch = known.high or known.low or (2, 11)
    recording = read_recording(snapshot, device.index, torch, limit=job.limit, progress=job.progress)
    conf = (snapshot.settings.conf if snapshot.settings is not None else "") or format_conf(recording.conf)
    pattern = read_pattern(snapshot, recording, torch, conf)
    for limit in limits_of(recording.bracket, recording, job.limit):
        attempt = with_limit(pattern, limit)
        if 0 < limit < Limits().fraction and fails(attempt):
            return attempt, job.judge(job.evidence) if job.judge is not None else ""
    raise OomctlError(
        "no constant limit makes these requests fail where they failed in the recording",
        "what stopped the allocator may have changed while the program ran; --limit tries another",
    )


def _agreeing(judge: Judge, known: str) -> Callable[[Pattern], bool]:
    """Whether what a pattern would record is of the same class."""
    return lambda pattern: judge(Evidence(snapshots=(recorded(pattern),))) == known
