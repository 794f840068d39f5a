"""Trace events (dicts) into the columns of a `Trace`, a batch at a time so that the dicts can be dropped."""

from __future__ import annotations

from array import array
from operator import itemgetter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from oomctl.model.common import Skipped
from oomctl.model.snapshot import DEFAULT_POOL, Action, PoolId, Trace
from oomctl.sources.interning import Codes, StackInterner, clean, clipped

ACTIONS: Final = {a.name.lower(): int(a) for a in Action if a is not Action.UNKNOWN}
KNOWN_KEYS: Final = frozenset(
    (
        "action", "addr", "device_free", "size", "stream", "time_us", "frames", "forward_frames", "compile_context",
        "user_metadata", "pool_id", "category",
    )
)  # fmt: skip
_PLACED: Final = frozenset(name for name, code in ACTIONS.items() if code <= Action.SEGMENT_UNMAP)
"""Kinds of events that have an address and a size."""
WORD: Final = 1 << 64
MAX_SIZE: Final = 1 << 60
"""Bytes from which torch itself refuses a request ("1EB"); sizes in files stay below."""
_DEFAULTS: Final[dict[str, Any]] = {"stream": 0, "time_us": 0}
_ABSENT: Final = {"pool": -1, "context": -1, "metadata": -1}
_NO_TEXT: Final = ("", "N/A", None)
_TEXT_COLUMNS: Final = {"context": "compile_context", "metadata": "user_metadata"}
_MAX_UNKNOWN: Final = 50
BATCH: Final = 1 << 14


class _OddValueError(Exception):
    """A value of another type or range than every torch writes."""


class TraceBuilder:
    """Collects the events of one device.

    Args:
        stacks: Shared by the whole snapshot.
        pools: Shared by the whole device.
    """

    def __init__(self, stacks: StackInterner, pools: Codes) -> None:
        self._stacks = stacks
        self.pools = pools
        self._columns: dict[str, list[NDArray[Any]]] = {}
        self._texts = {name: Codes() for name in _TEXT_COLUMNS}
        self._device_free: dict[int, int] = {}
        self.count = 0
        self.keys: set[str] = set()
        """Keys that any event had."""
        self._unknown_actions: dict[str, int] = {}
        self._unreadable = 0
        self._texts_unreadable = 0

    def add(self, events: list[Any]) -> None:
        """Adds events, oldest first; they may be changed or dropped afterwards."""
        for start in range(0, len(events), BATCH):
            batch = events[start : start + BATCH]
            try:
                columns = self._batch(batch)
            except (_OddValueError, KeyError, TypeError, AttributeError, ValueError, OverflowError):
                batch = [self._mended(event) for event in batch]
                columns = self._batch(batch)
            for name in columns.keys() | self._columns.keys():
                parts = self._columns.setdefault(name, [])
                absent = self.count - sum(map(len, parts))
                if absent:  # torch writes a key for all events or for none; this file only begins to
                    parts.append(np.full(absent, _ABSENT.get(name, 0), columns[name].dtype))
                if name in columns:
                    parts.append(columns[name])
                else:
                    parts.append(np.full(len(batch), _ABSENT.get(name, 0), parts[0].dtype))
            self.count += len(batch)

    def _batch(self, events: list[Any]) -> dict[str, NDArray[Any]]:
        n = len(events)
        table, keys = _table(events)
        action = _codes(table["action"])
        if not table.keys() >= {"addr", "size"} and (action <= Action.SEGMENT_UNMAP).any():
            raise _OddValueError
        columns: dict[str, NDArray[Any]] = {
            "action": action,
            "address": np.frombuffer(_words(table.get("addr", [0] * n)), np.uint64),
            "size": _sizes(table.get("size", [0] * n)),
            "stream": np.frombuffer(_words(table.get("stream", [0] * n)), np.uint64),
        }
        if "time_us" in table:
            columns["time_us"] = np.frombuffer(array("q", table["time_us"]), np.int64)
        if "pool_id" in table:
            columns["pool"] = self._pool_column(table["pool_id"])
        failures = [i for i in (action == Action.OOM).nonzero()[0].tolist() if "device_free" in events[i]]
        free = {self.count + i: _size(events[i]["device_free"]) for i in failures}
        for name, key in _TEXT_COLUMNS.items():
            if key in table:
                columns[name] = self._text_column(table[key], self._texts[name])
        # Nothing is counted before this point, so that a batch can be tried again.
        frames = table["frames"] if "frames" in table else [None] * n
        if "forward_frames" in table:
            frames = [*map(self._stacks.joined, frames, table["forward_frames"])]
        columns["stack"] = self._stacks.column(frames)
        self._device_free.update(free)
        self.keys |= keys
        for i in (action == Action.UNKNOWN).nonzero()[0].tolist():
            self._count_unknown(events[i]["action"])
        return columns

    def _count_unknown(self, action: Any) -> None:
        if action is None:
            return  # mended: counted as unreadable
        name = clean(action)[:40]
        if name in self._unknown_actions or len(self._unknown_actions) < _MAX_UNKNOWN:
            self._unknown_actions[name] = self._unknown_actions.get(name, 0) + 1

    def _mended(self, event: Any) -> dict[str, Any]:
        """The event if it can be read, else one of unknown kind in its place, so that the others keep their order."""
        try:
            if type(event["action"]) is not str or not all(type(key) is str for key in event):
                raise _OddValueError
            mended = dict(event)
            if event["action"] == "oom":
                mended["device_free"] = _size(event.get("device_free", 0))
            placed = event["action"] in _PLACED
            _words([event["addr"] if placed else event.get("addr", 0), event.get("stream", 0)])
            _size(event["size"] if placed else event.get("size", 0))
            array("q", [event.get("time_us", 0)])
            if "pool_id" in event:
                mended["pool_id"] = pool_of(event["pool_id"])
        except (_OddValueError, KeyError, TypeError, AttributeError, ValueError, OverflowError):
            self._unreadable += 1
            time = event.get("time_us") if type(event) is dict else None
            return (
                {"action": None, "time_us": time} if type(time) is int and 0 <= time < WORD >> 1 else {"action": None}
            )
        for key in ("compile_context", "user_metadata"):
            if key in mended and mended[key] is not None and type(mended[key]) is not str:
                self._texts_unreadable += 1
                mended[key] = None
        return mended

    def _pool_column(self, values: list[Any]) -> NDArray[np.int32]:
        codes = {v: -1 if v is None else self.pools.code(pool_of(v)) for v in dict.fromkeys(values)}
        return np.fromiter(map(codes.__getitem__, values), np.int32, len(values))

    def _text_column(self, values: list[Any], texts: Codes) -> NDArray[np.int32]:
        codes: dict[Any, int] = {}
        for value in dict.fromkeys(values):
            if value not in _NO_TEXT and type(value) is not str:
                raise _OddValueError
            codes[value] = -1 if value in _NO_TEXT else texts.code(clean(value))
        if len(codes) == 1:
            return np.full(len(values), next(iter(codes.values())), np.int32)
        return np.fromiter(map(codes.__getitem__, values), np.int32, len(values))

    def finish(self) -> Trace | None:
        """The columns; None without events."""
        if not self.count:
            return None

        def joined(name: str) -> Any:
            parts = self._columns.get(name)
            return None if parts is None else np.concatenate(parts)

        # Each column has numbers of its own until now, so that they do not depend on how events came in batches.
        context, metadata = self._texts["context"], self._texts["metadata"]
        texts = Codes(context)
        renumbered = np.array([*map(texts.code, metadata), -1], np.int32)
        metadata_column = joined("metadata")

        return Trace(
            action=joined("action"),
            address=joined("address"),
            size=joined("size"),
            stream=joined("stream"),
            stack=joined("stack"),
            time_us=joined("time_us"),
            pool=joined("pool"),
            context=joined("context"),
            metadata=None if metadata_column is None else renumbered[metadata_column],
            texts=tuple(map(clipped, texts)),
            device_free=self._device_free,
        )

    def skipped(self) -> list[Skipped]:
        """What could not be read of these events."""
        found = []
        for name, count in self._unknown_actions.items():
            found.append(Skipped("trace events", f'{count} of the unknown kind "{name}" are passed over'))
        if self._unreadable:
            found.append(Skipped("trace events", f"{self._unreadable} of {self.count} are damaged and passed over"))
        if self._texts_unreadable:
            found.append(Skipped("event texts", f"{self._texts_unreadable} are no text and are passed over"))
        return found


def _table(events: list[Any]) -> tuple[dict[str, list[Any]], set[Any]]:
    """The known keys' values, and the names of all keys."""
    keys = set(events[0])
    if sum(map(len, events)) == len(events) * len(keys):
        try:
            return {key: list(map(itemgetter(key), events)) for key in keys}, keys
        except KeyError:
            pass
    keys = keys.union(*events)
    table = {key: [e.get(key, _DEFAULTS.get(key)) for e in events] for key in keys & KNOWN_KEYS}
    for key in ("addr", "size"):
        table[key] = [e[key] if e["action"] in _PLACED else e.get(key, 0) for e in events]
    return table, keys


def _codes(actions: list[Any]) -> NDArray[np.uint8]:
    try:
        return np.frombuffer(bytes(map(ACTIONS.__getitem__, actions)), np.uint8)
    except KeyError:
        return np.fromiter((ACTIONS.get(a, int(Action.UNKNOWN)) for a in actions), np.uint8, len(actions))


def _words(values: list[Any]) -> array[int]:
    """Addresses and stream handles; negative ones are 64-bit numbers that were read as signed."""
    try:
        return array("Q", values)
    except OverflowError:
        if min(values) < -(WORD >> 1) or max(values) >= WORD:
            raise
        return array("Q", [v % WORD for v in values])


def _sizes(values: list[Any]) -> NDArray[np.int64]:
    sizes = np.frombuffer(array("q", values), np.int64)
    if sizes.min() < 0 or sizes.max() >= MAX_SIZE:
        raise _OddValueError
    return sizes


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < MAX_SIZE:
        raise _OddValueError
    return value


def pool_of(value: Any) -> PoolId:
    """A pool id as the file has it: a tuple (pickle) or list (JSON) of two integers.

    Raises:
        ValueError: It is none.
    """
    if type(value) in (tuple, list) and len(value) == 2 and all(type(v) is int and 0 <= v < WORD for v in value):
        return (value[0], value[1])
    if value is None:
        return DEFAULT_POOL
    raise ValueError("no pool id")
