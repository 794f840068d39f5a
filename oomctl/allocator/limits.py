"""The limit that the recorded run was under: what it reached lies below, what it was refused lies above."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oomctl.allocator.growth import Growth
from oomctl.allocator.policy import UNLIMITED, Policy


@dataclass(frozen=True, slots=True)
class Limits:
    """What stops growth, in bytes.

    Attributes:
        fraction: Cap of set_per_process_memory_fraction, tested against whole segments; also arms garbage collection.
        capacity: What the driver has for this process, tested against real bytes.
    """

    fraction: int = UNLIMITED
    capacity: int = UNLIMITED


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Bracket:
    """What the trace says about the limit.

    Attributes:
        low: Bytes; the limit is at least this.
        high: Bytes; the limit is below this. `UNLIMITED` where nothing was refused.
        kind: "fraction", "device", or None where no failure tells.
        exact: Bytes; the limit itself where the card was full, else None.
    """

    low: int
    high: int
    kind: str | None
    exact: int | None = None

    @property
    def steady(self) -> bool:
        """Whether one constant limit explains all refusals."""
        return self.low < self.high

    def limits(self, value: int) -> Limits:
        """Limits of the recorded kind at this many bytes."""
        return Limits(capacity=value) if self.kind == "device" else Limits(fraction=value)

    @property
    def best(self) -> int | None:
        """A limit that agrees with the trace, or None where nothing limited it."""
        if self.high >= UNLIMITED:
            return None
        if self.exact is not None and self.low <= self.exact < self.high:
            return self.exact
        return max(self.low, min((self.low + self.high) // 2, self.high - 1))


def bracket(growth: Growth, device_free: Mapping[int, int], policy: Policy, until: int | None) -> Bracket:
    """Brackets the limit from the recorded refusals.

    Args:
        growth: The recorded driver calls.
        device_free: Free bytes on the device by oom event.
        policy: Rules of the recorded setting.
        until: Trace index of the oom that matters most; None for the last one.
    """
    ooms = [a for a in growth.attempts if not a.served]
    fatal = next((a for a in ooms if a.event == until), ooms[-1] if ooms else None)
    kind, exact = None, None
    if fatal is not None:
        free = device_free.get(fatal.event)
        if free is not None:
            kind = "device" if free < fatal.need else "fraction"
            exact = fatal.after + free if kind == "device" else None
    low, high = 0, UNLIMITED
    for attempt in growth.attempts:
        if attempt.served:
            # Under a fraction, a map may overshoot the cap by less than one granule: only the test counts. A device
            # counts what was mapped.
            grown = {"fraction": attempt.need, "device": attempt.mapped, None: min(attempt.need, attempt.mapped)}
            low = max(low, attempt.after + grown[kind])
        if attempt.refused and (not attempt.served or not policy.gc_threshold):
            high = min(high, (attempt.before if attempt.served else attempt.after) + attempt.need)
    return Bracket(low, high, kind, exact)
