"""Stacks and texts of a snapshot, each kept once."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from oomctl.model.stacks import BACKWARD_OF, NO_STACK, Frame, StackTable

MAX_LINE: Final = 1 << 31
"""Line numbers from here on are torch's "unknown", for example 2^64 - 1."""
_MAX_IDENTITIES: Final = 20_000
_MAX_ALIKE: Final = 16
_PLAIN: Final = (str, int, float, bool, type(None))
_FRAME_KEYS: Final = frozenset(
    ("name", "filename", "line", "fx_node_op", "fx_node_name", "fx_node_target", "fx_original_trace")
)


LONGEST: Final = 4096
"""Characters of a name or text that are kept."""
_FORMATTED: Final = re.compile(r'^ *File "([^"\n]{1,4096})", line ([0-9]{1,9}), in ([^\n]{1,4096})', re.MULTILINE)
"""A frame as `traceback.format_stack` writes it."""
_MAX_FORMATTED: Final = 64
"""Innermost frames that are kept of a formatted stack."""
_MAX_JOINED: Final = 1 << 20
"""Formatted frames of one file: each may be repeated in any stack."""


def clean(text: str) -> str:
    """A string that can be encoded: lone surrogates, which pickle and JSON let through, become "?"."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def shortened(frame: Frame) -> Frame:
    """A frame whose names are of a length that code has; a file may repeat one of megabytes in every frame."""
    if len(frame.filename) <= LONGEST and len(frame.name) <= LONGEST:
        return frame
    return Frame(clipped(frame.filename), frame.line, clipped(frame.name))


def clipped(text: str) -> str:
    """Text from a file without what is beyond `LONGEST` characters."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def _formatted(text: str) -> list[Frame]:
    """Frames that `traceback.format_stack` wrote, innermost first."""
    found = [Frame(clean(file), int(line), clean(name)) for file, line, name in _FORMATTED.findall(text)]
    return found[::-1][:_MAX_FORMATTED]


class StackInterner:
    """Numbers stacks by content.

    In a pickle frames are shared objects and frames lists are often: both are told apart by identity first. The
    frames stay alive here, so that an identity means the same object as long as this lives.
    """

    def __init__(self) -> None:
        self._frames: dict[Frame, int] = {}
        self._frame_of: dict[int, tuple[int, ...]] = {}
        self._alive: list[Any] = []
        self._alike: dict[tuple[int, ...], list[tuple[list[Any], int]]] = {}
        self._by_identity: dict[tuple[int, ...], int] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._bent: set[int] = set()
        self.unknown_keys: set[str] = set()
        self.unreadable = 0
        """Frames and frames lists that were none."""
        self.without_origin = 0
        """Stacks whose forward or original frames found no room."""
        self._forward: dict[tuple[str, ...], list[Any]] = {}
        self._joined: dict[tuple[int, int], tuple[Any, list[Any]]] = {}
        self._joined_frames = 0

    def joined(self, frames: Any, forward: Any) -> Any:
        """The frames of an allocation in the backward pass, with those of the forward operation that it belongs to.

        Args:
            frames: Its own frames list, or None.
            forward: The event's or block's `forward_frames` (torch >= 2.11 in anomaly mode): texts as
                `traceback.format_stack` writes them, outermost first.

        Returns:
            A frames list, innermost first; `frames` itself where there is no forward.
        """
        if not forward:
            return frames
        if type(forward) is not list or not all(type(text) is str for text in forward):
            self.unreadable += 1
            return frames
        key = tuple(forward)
        tail = self._forward.get(key)
        if tail is None:
            found = [frame._asdict() for frame in _formatted("\n".join(forward))]
            tail = [BACKWARD_OF._asdict(), *found] if found else []
            self._forward[key] = tail
        known = self._joined.get((id(frames), id(tail)))
        if known is not None:
            return known[1]
        if not tail or self._joined_frames + len(tail) > _MAX_JOINED:
            self.without_origin += 1
            return frames
        made = [*(frames if type(frames) in (list, tuple) else ()), *tail]
        self._joined_frames += len(tail)
        self._joined[id(frames), id(tail)] = (frames, made)
        return made

    def column(self, lists: list[Any]) -> NDArray[np.int32]:
        """Stack numbers of many frames lists; None and empty lists are `NO_STACK`.

        Args:
            lists: Frames lists, innermost frame first; all alive until this returns.
        """
        known: dict[int, int] = {}
        distinct = dict(zip(map(id, lists), lists, strict=True))
        alike = self._alike.get
        for identity, frames in distinct.items():
            if type(frames) is not list:
                known[identity] = self._odd(frames)
            elif not frames:
                known[identity] = NO_STACK
            else:
                # Three frames tell nearly all stacks apart; comparing the rest costs a pointer each.
                count = len(frames)
                key = (count, id(frames[0]), id(frames[-1]), id(frames[count >> 1]))
                for seen, number in alike(key, ()):
                    if seen == frames:
                        known[identity] = number
                        break
                else:
                    known[identity] = self._new(key, frames)
        if len(distinct) == 1:
            return np.full(len(lists), next(iter(known.values())), np.int32)
        return np.fromiter(map(known.__getitem__, map(id, lists)), np.int32, len(lists))

    def _odd(self, frames: Any) -> int:
        if isinstance(frames, tuple):
            return self._new((), list(frames)) if frames else NO_STACK
        self.unreadable += frames is not None
        return NO_STACK

    def _new(self, key: tuple[int, ...], frames: list[Any]) -> int:
        identities = tuple(map(id, frames))
        number = self._by_identity.get(identities)
        if number is not None:
            return number
        parts = [self._frame(frame) for frame in frames]
        content = tuple(number for part in parts for number in part)
        if len(content) > len(parts):
            self._joined_frames += len(content) - len(parts)
            if self._joined_frames > _MAX_JOINED:
                self.without_origin += 1
                content = tuple(part[0] for part in parts)
        number = self._stacks.setdefault(content, len(self._stacks))
        if len(self._by_identity) > _MAX_IDENTITIES + 4 * len(self._stacks):
            self._by_identity.clear()  # frames are not shared in this file: identities only cost memory
            self._alike.clear()
        self._by_identity[identities] = number
        seen = self._alike.setdefault(key, [])
        # Only frames of plain values may be compared with what a stranger's file holds: nested ones could take forever.
        if len(seen) < _MAX_ALIKE and self._bent.isdisjoint(identities):
            seen.append((frames, number))
        return number

    def _frame(self, frame: Any) -> tuple[int, ...]:
        """The frame's number; after that of generated code those of what it was generated from (torch.compile)."""
        numbers = self._frame_of.get(id(frame))
        if numbers is None:
            origin = frame.get("fx_original_trace") if type(frame) is dict else None
            read = [self._read(frame), *(_formatted(origin) if type(origin) is str else ())]
            numbers = tuple(self._frames.setdefault(f, len(self._frames)) for f in read)
            self._frame_of[id(frame)] = numbers
            self._alive.append(frame)
        return numbers

    def _read(self, frame: Any) -> Frame:
        if type(frame) is dict:
            filename, name, line = frame.get("filename"), frame.get("name"), frame.get("line")
            if type(filename) is str and type(name) is str and type(line) is int:
                if len(frame) > 3 and not all(type(v) in _PLAIN for v in frame.values()):
                    self._bent.add(id(frame))
                if not frame.keys() <= _FRAME_KEYS:
                    self.unknown_keys.update(f"frames[].{key}" for key in frame.keys() - _FRAME_KEYS)
                return Frame(clean(filename), line if 0 <= line < MAX_LINE else 0, clean(name))
        self.unreadable += 1
        self._bent.add(id(frame))
        return Frame("??", 0, "??")

    def mentions(self, *words: str) -> bool:
        """Whether a word stands in the name or file of any frame."""
        frames = map(shortened, self._frames)
        return any(word in frame.filename or word in frame.name for frame in frames for word in words)

    def table(self) -> StackTable:
        """The stacks so far."""
        offsets = np.zeros(len(self._stacks) + 1, np.int64)
        np.cumsum([len(s) for s in self._stacks], out=offsets[1:])
        ids = np.fromiter((i for s in self._stacks for i in s), np.int32, int(offsets[-1]))
        return StackTable(tuple(shortened(frame) for frame in self._frames), offsets, ids)


class Codes(dict[Any, int]):
    """Value -> number, in order of first use."""

    def code(self, value: Any) -> int:
        """The number of a value."""
        return self.setdefault(value, len(self))

    def column(self, values: Iterable[Any], count: int) -> NDArray[np.int32]:
        """The numbers of many values."""
        return np.fromiter(map(self.code, values), np.int32, count)
