"""Stack frames and the interned table of stacks that traces and blocks point into."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:  # a log is read without numpy, which takes longer to load than the log to read
    import numpy as np
    from numpy.typing import NDArray

NO_STACK: Final = -1
"""Stack index of an event or block that was recorded without frames."""


class Frame(NamedTuple):
    """One stack frame, as torch records it.

    Attributes:
        filename: Path, basename or "??".
        line: Line number; 0 when unknown.
        name: Function name.
    """

    filename: str
    line: int
    name: str


BACKWARD_OF: Final = Frame("??", 0, "backward of")
"""Stands between what the autograd engine ran and the forward frames of the operation that it differentiated."""


@dataclass(frozen=True, slots=True, eq=False)
class StackTable:
    """Distinct stacks of one snapshot, interned by content; index 0 of a stack is its innermost frame.

    Attributes:
        frames: Distinct frames.
        offsets: int64[n_stacks + 1]; stack i is ``frame_ids[offsets[i]:offsets[i + 1]]``.
        frame_ids: int32[sum of depths], indices into `frames`.
    """

    frames: tuple[Frame, ...]
    offsets: NDArray[np.int64]
    frame_ids: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def ids(self, stack: int) -> list[int]:
        """Frame indices of a stack, innermost first; empty for `NO_STACK`."""
        if stack < 0:
            return []
        ids: list[int] = self.frame_ids[self.offsets[stack] : self.offsets[stack + 1]].tolist()
        return ids

    def __getitem__(self, stack: int) -> tuple[Frame, ...]:
        return tuple(self.frames[i] for i in self.ids(stack))

    def __iter__(self) -> Iterator[tuple[Frame, ...]]:
        return (self[i] for i in range(len(self)))


def empty_stacks() -> StackTable:
    """A table without stacks."""
    import numpy as np

    return StackTable((), np.zeros(1, np.int64), np.zeros(0, np.int32))
