"""`torch.cuda.memory_stats()`: JSON, a printed dict or OrderedDict, or one `key: value` a line."""

from __future__ import annotations

import re
from typing import Final

from oomctl.model.log import MemoryStats
from oomctl.sources.text.base import Findings, Passage
from oomctl.sources.text.normalise import Line

_KEY: Final = re.compile(
    r"(?P<key>\b(?:allocation|allocated|segment|active|inactive_split|allocated_bytes|reserved_bytes|active_bytes|"
    r"inactive_split_bytes|requested_bytes|oversize_allocations|oversize_segments|active_requests)"
    r"\.(?:(?:all|large_pool|small_pool)\.)?(?:current|peak|allocated|freed)"
    r"|\b(?:num_alloc_retries|num_ooms|max_split_size|num_sync_all_streams|num_device_alloc|num_device_free|num_oom_rejections))"
    r"['\"]?\s*[:=,|]?\s*(?P<value>-?\d{1,20})\b"
)


class Stats:
    """Reads counters; a key that comes again starts a new set."""

    slug = "memory_stats"

    def read(self, passage: Passage, found: Findings) -> None:
        """Adds one `MemoryStats` a printed set of counters."""
        for lines in passage.workers:
            values: dict[str, int] = {}
            start: Line | None = None
            last = 0
            for line in lines:
                if "_" not in line.text and "." not in line.text:
                    continue
                for match in _KEY.finditer(line.text):
                    if start is None or match["key"] in values or line.no - last > 40:
                        self._keep(values, start, passage, found)
                        values, start = {}, line
                    values[match["key"]] = int(match["value"])
                    last = line.no
            self._keep(values, start, passage, found)

    @staticmethod
    def _keep(values: dict[str, int], start: Line | None, passage: Passage, found: Findings) -> None:
        if start is None or len(values) < 2 or not passage.stretch.accepts(start.no):
            return
        if any(known.line == start.no and known.values.keys() == values.keys() for known in found.stats):
            return
        if found.room("memory_stats", len(found.stats)):
            rank = start.rank if start.rank is not None else found.rank
            found.stats.append(MemoryStats(dict(values), start.no, found.source, rank))
