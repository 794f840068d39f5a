"""Pickles through the compiled decoder, where there is one: the same snapshot, sooner and in less memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from oomctl import _native
from oomctl.model.snapshot import DEFAULT_POOL, Snapshot, Trace
from oomctl.model.stacks import NO_STACK, Frame, StackTable
from oomctl.sources.interning import Codes, StackInterner, clipped, shortened
from oomctl.sources.snapshot_objects import Traces, snapshot_from_objects
from oomctl.sources.trace_columns import TraceBuilder

_ALWAYS: Final = frozenset(("action", "size"))
_TEXT_KEYS: Final = ("context", "metadata")


def has_kernel() -> bool:
    """Whether there is a compiled decoder."""
    return _native.kernel("decode") is not None


def read_compiled(pieces: Iterable[bytes | memoryview]) -> Snapshot | None:
    """Decodes a snapshot pickle of the layouts of torch 2.1 to 2.14.

    Args:
        pieces: The pickle in pieces of any size; not all are consumed where it is of another layout.

    Returns:
        The snapshot; None where it takes Python's own way of reading to decide, or there is no compiled decoder.

    Raises:
        OomctlError: It is no memory snapshot, or contradicts itself.
    """
    native = _native.kernel("decode")
    if native is None:
        return None
    decoder = native.Decoder(random_seed())
    size = 0
    try:
        for piece in pieces:
            decoder.feed(piece)
            size += len(piece)
        objects = decoder.finish()
        traces = _Traces(native, decoder)
        recorded = objects.get("device_traces") if type(objects) is dict else None
        if type(recorded) is native.EventRun:
            return None  # events where lists of them belong
        if type(recorded) is list and not all(type(r) is native.EventRun or r == [] for r in recorded):
            return None
    except native.Unsupported:
        return None
    return snapshot_from_objects(objects, traces, size=size)


class _Stacks(StackInterner):
    """Numbers the decoder's stacks in the order of first use, as the interner of objects does."""

    def __init__(self, native: Any, decoder: Any) -> None:
        super().__init__()
        self._native = native
        self._decoder = decoder
        self._number_of = np.full(decoder.counts()[0], NO_STACK, np.int32)
        self._order: list[int] = []
        self._made: tuple[int, StackTable] | None = None

    def column(self, lists: list[Any]) -> NDArray[np.int32]:
        """Stack numbers for what stands for frames lists."""
        raw = np.fromiter(
            (x.number if type(x) is self._native.StackRef else NO_STACK for x in lists), np.int32, len(lists)
        )
        return self.renumbered(raw)

    def renumbered(self, raw: NDArray[np.int32]) -> NDArray[np.int32]:
        """Stack numbers for the decoder's own, changed in place."""
        self._native.renumber(raw, self._number_of, self._order)
        return raw

    def mentions(self, *words: str) -> bool:
        """Whether a word stands in the name or file of any frame."""
        return any(word in frame.filename or word in frame.name for frame in self.table().frames for word in words)

    def table(self) -> StackTable:
        """The stacks so far."""
        if self._made is None or self._made[0] != len(self._order):
            frames, offsets, ids = self._decoder.stack_table(np.array(self._order, np.int32))
            self._made = len(self._order), StackTable(tuple(shortened(Frame._make(f)) for f in frames), offsets, ids)
        return self._made[1]


class _Traces(Traces):
    """The decoder's events by what stands for the lists of them."""

    stacks: _Stacks

    def __init__(self, native: Any, decoder: Any) -> None:
        super().__init__()
        self._native = native
        self._decoder = decoder
        self.stacks = _Stacks(native, decoder)
        self._columns: dict[str, NDArray[Any]] = decoder.columns()
        self._free: list[tuple[int, int]] = decoder.device_free()

    def of(self, events: Any) -> TraceBuilder:
        """The builder of a run of events."""
        if type(events) is not self._native.EventRun:
            return super().of(events)
        rows = slice(events.first, events.first + events.count)
        columns = {name: column[rows] for name, column in self._columns.items()}
        free = {row - events.first: size for row, size in self._free if rows.start <= row < rows.stop}
        return _Builder(self._native, self._decoder, self.stacks, columns, events.keys, free)


class _Builder(TraceBuilder):
    """One device's events, which are columns already."""

    def __init__(
        self,
        native: Any,
        decoder: Any,
        stacks: _Stacks,
        columns: dict[str, NDArray[Any]],
        keys: frozenset[str],
        device_free: dict[int, int],
    ) -> None:
        super().__init__(stacks, Codes({DEFAULT_POOL: 0}))
        self._native = native
        self._rows = columns
        self._free = device_free
        self.count = len(columns["action"])
        self.keys = {*_ALWAYS, *keys}
        _, pools, texts = decoder.counts()
        stacks.renumbered(columns["stack"])
        self._rows["pool"] = self._coded(columns["pool"], pools, decoder.pair, self.pools)
        self._text_codes = Codes()
        for name in _TEXT_KEYS:
            self._rows[name] = self._coded(columns[name], texts, decoder.text, self._text_codes)

    def _coded(self, raw: NDArray[np.int32], count: int, value_of: Any, codes: Codes) -> NDArray[np.int32]:
        """Numbers by first use for the decoder's own; -1 stays. A column of one value stays that, without memory."""
        if not raw.flags.writeable:
            first = int(raw[0])
            return np.broadcast_to(np.int32(first if first < 0 else codes.code(value_of(first))), len(raw))
        order: list[int] = []
        self._native.renumber(raw, np.full(count, -1, np.int32), order)
        numbers = np.array([*(codes.code(value_of(old)) for old in order), -1], np.int32)
        if (numbers[:-1] != np.arange(len(order))).any():
            numbers.take(raw, out=raw, mode="wrap")
        return raw

    def finish(self) -> Trace:
        """The columns."""
        rows = self._rows
        trace = Trace(
            action=rows["action"],
            address=rows["address"],
            size=rows["size"],
            stream=rows["stream"],
            stack=rows["stack"],
            time_us=rows["time_us"] if "time_us" in self.keys else None,
            pool=rows["pool"] if "pool_id" in self.keys else None,
            context=rows["context"] if "compile_context" in self.keys else None,
            metadata=rows["metadata"] if "user_metadata" in self.keys else None,
            texts=tuple(map(clipped, self._text_codes)),
            device_free=self._free,
        )
        kernel = _native.kernel("order")
        if kernel is not None:
            trace.remember(kernel.by_address(trace.action, trace.address, random_seed()))
        return trace


def random_seed() -> int:
    """A number that no file can know."""
    return int.from_bytes(os.urandom(8), "little")
