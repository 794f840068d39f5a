"""Lines on memory every so many steps, and warnings before the failure; arithmetic only."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from oomctl.recorder.backend import Sample
from oomctl.units import MIB, format_size

SAMPLES: Final = 64
"""Samples kept; when full, every second one is dropped, so that they always span the whole run."""
FEWEST: Final = 16
"""Samples before growth is judged."""
GROUPS: Final = 4
"""Parts of the run whose lowest points must rise one after the other."""
LEAST_RISE: Final = 64 * MIB
LEAST_SHARE: Final = 0.01
"""Growth below either of these, or this share of the limit, is not worth a line."""
NEARLY_FULL: Final = 0.9
LOOSE: Final = 0.7
"""Reserved above the first share of the limit while never more than the second share of it was live at once."""


class Growth:
    """Judges whether memory at the end of the steps rises without an end.

    The first quarter is taken as warm-up. The lowest point of each following part must lie above the one before it by
    at least a quarter of the mean rise: what comes back down, or rose once and stays, is no growth.
    """

    def __init__(self) -> None:
        self.points: list[tuple[int, int]] = []
        self.stride = 1
        self.seen = 0

    def add(self, step: int, allocated: int) -> None:
        """Takes the bytes live at the end of a step."""
        if self.seen % self.stride == 0:
            self.points.append((step, allocated))
            if len(self.points) >= SAMPLES:
                self.points = self.points[::2]
                self.stride *= 2
        self.seen += 1

    def rise(self, limit: int | None) -> tuple[int, int, int, int] | None:
        """(first step, last step, bytes there, bytes here) of a growth, or None.

        Args:
            limit: Bytes that may be reserved, or None.
        """
        if len(self.points) < FEWEST:
            return None
        points = self.points[len(self.points) // 4 :]
        size = len(points) // GROUPS
        parts = [points[i * size : (i + 1) * size] for i in range(GROUPS - 1)] + [points[(GROUPS - 1) * size :]]
        lows = [min(part, key=lambda point: point[1]) for part in parts]
        rises = [after[1] - before[1] for before, after in pairwise(lows)]
        total = lows[-1][1] - lows[0][1]
        if total < max(LEAST_RISE, LEAST_SHARE * (limit or 0)) or min(rises) * len(rises) * 4 < total:
            return None
        return lows[0][0], lows[-1][0], lows[0][1], lows[-1][1]


class Watch:
    """Turns samples into lines.

    Args:
        lines_every: Steps between lines; 0 prints none.
        alarm: Whether to warn.
    """

    def __init__(self, lines_every: int, alarm: bool) -> None:
        self.lines_every, self.alarm = lines_every, alarm
        self.growth = Growth()
        self.printed: int | None = None
        self.retries = 0
        self.grown = 0
        self.loose = False

    def due(self, step: int) -> bool:
        """Whether a line is to be printed at this step."""
        if self.lines_every <= 0:
            return False
        return self.printed is None or step - self.printed >= self.lines_every or step < self.printed

    def see(self, step: int, sample: Sample, limit: int | None) -> list[str]:
        """What to say at the end of a step.

        Args:
            step: Its number.
            sample: Counters there.
            limit: Bytes that may be reserved, or None when unknown.
        """
        lines = []
        if self.due(step):
            self.printed = step
            lines.append(line(step, sample))
        if self.alarm:
            self.growth.add(step, sample.allocated)
            lines += self._growing(limit)
            lines += self._flushed(sample)
            lines += self._loose(sample, limit)
        return lines

    def _growing(self, limit: int | None) -> list[str]:
        found = self.growth.rise(limit)
        if found is None:
            return []
        first, last, low, high = found
        if self.grown and high - low < 2 * self.grown:  # said already; again when it has doubled
            return []
        self.grown = high - low
        rate = (high - low) / max(1, last - first)
        when = ""
        if limit is not None and limit > high:
            when = f"; at this rate {format_size(limit)} are full in about {int((limit - high) / rate)} steps"
        return [
            f"memory rises from step to step: {format_size(low)} at step {first}, {format_size(high)} at step {last}, "
            f"{format_size(int(rate))} a step{when}"
        ]

    def _flushed(self, sample: Sample) -> list[str]:
        if not sample.retries or self.retries:
            return []
        self.retries = sample.retries
        return [
            f"the cache had to be given back to serve a request ({sample.retries} times so far): memory is at its "
            f"limit with {format_size(sample.reserved)} reserved"
        ]

    def _loose(self, sample: Sample, limit: int | None) -> list[str]:
        # Live memory at the end of a step is low by nature; what was never live at once is idle beyond doubt.
        if self.loose or not limit or sample.reserved < NEARLY_FULL * limit or sample.peak > LOOSE * sample.reserved:
            return []
        self.loose = True
        return [
            f"{format_size(sample.reserved)} of {format_size(limit)} are reserved, but no more than "
            f"{format_size(sample.peak)} were ever live at once: fragmentation"
        ]


def line(step: int, sample: Sample) -> str:
    """One line on memory, in a form that `oomctl summary` reads as a series."""
    idle = 1 - sample.allocated / sample.reserved if sample.reserved else 0.0
    return (
        f"step {step}: allocated {format_size(sample.allocated)}, peak {format_size(sample.peak)}, "
        f"reserved {format_size(sample.reserved)}, idle {idle:.0%}, retries {sample.retries}"
    )
