"""A snapshot written again: in pickle protocol 4, which every viewer reads, and cut to a size that a browser survives.

Python 3.14 pickles in protocol 5 by default, which pytorch.org/memory_viz refuses.
"""

from __future__ import annotations

import pickle
from typing import Final

from oomctl.analysis.holdings import event_at
from oomctl.analysis.lives import lives
from oomctl.exports.base import Job, trace_of
from oomctl.exports.objects import as_objects
from oomctl.model.alloc_conf import conf_from_recorded

PROTOCOL: Final = 4
AROUND: Final = 20_000
"""Events kept around a moment where no number is given: a browser draws them at once."""
AFTER: Final = 10
"""One event in this many of a window comes after its moment; what led to a failure matters more."""


class Pickle:
    """A snapshot for pytorch.org/memory_viz and torch's own tools, of the whole trace or a window of it."""

    name = "pickle"
    suffixes = (".pickle", ".pkl")
    what = "A snapshot that pytorch.org/memory_viz opens; --last N or --around oom keep a window of it, replayable."

    def write(self, job: Job, path: str) -> tuple[str, ...]:
        """Writes the objects that torch would."""
        snapshot, device = job.chosen()
        remarks: tuple[str, ...] = ()
        if job.last is None and job.around is None:
            events = 0 if device.trace is None else len(device.trace)
            window = None if job.device is None else {device.index: range(events)}
        else:
            kept = window_of(job)
            window = {device.index: kept}
            remarks = (f"kept events {kept.start:,} to {kept.stop - 1:,} of {len(trace_of(device)):,}",)
        data = as_objects(snapshot, window)
        with open(path, "wb") as stream:
            pickle.dump(data, stream, PROTOCOL)
        return remarks


def window_of(job: Job) -> range:
    """The events that --last and --around keep.

    Raises:
        OomctlError: There are no events, or no such moment.
    """
    snapshot, device = job.chosen()
    total = len(trace_of(device))
    many = job.last or AROUND
    if job.around is None:
        return range(max(total - many, 0), total)
    conf = conf_from_recorded(snapshot.settings, snapshot.torch.high or (2, 11))
    event, _ = event_at(device, lives(device, conf.roundup_power2_divisions), job.around)
    stop = min(event + 1 + many // AFTER, total)
    return range(max(stop - many, 0), stop)
