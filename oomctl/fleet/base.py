"""What a fleet gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Work = Callable[[Any], Any]
"""Picklable by name; takes a task and gives a result, both picklable."""


@dataclass(frozen=True, slots=True)
class Done:
    """One task's end.

    Attributes:
        index: Place of the task.
        result: What the work gave; None where it did not end.
        trouble: Why it did not end, or "".
    """

    index: int
    result: Any = None
    trouble: str = ""


class Fleet(Protocol):
    """Somewhere to work. Members keep few tasks and results in flight, whatever the number of tasks."""

    def run(self, work: Work, tasks: Sequence[Any]) -> Iterator[Done]:
        """Every task once, as it ends."""
        ...
