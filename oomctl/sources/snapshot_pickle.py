"""Pickles without code: the opcodes are checked first, every global is refused, and memory has a bound."""

from __future__ import annotations

import gc
import io
import pickle
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, NoReturn

from oomctl.errors import OomctlError, OomctlWarning
from oomctl.model.snapshot import Snapshot
from oomctl.sources.ahead import fetched_ahead
from oomctl.sources.compiled import has_kernel, read_compiled
from oomctl.sources.content import Content
from oomctl.sources.pickle_refusal import refuse
from oomctl.sources.pickle_scan import Walk, walk
from oomctl.sources.salvage import salvaged
from oomctl.sources.snapshot_objects import Traces, snapshot_from_objects
from oomctl.units import MIB, format_size

_HAND_OVER: Final = b"2Q0"
"""Opcodes that give the list on top of the stack to `persistent_load` and leave the stack as it was."""
_FRAME_SIZE: Final = 9
_BUFFER: Final = 1 << 18
_DAMAGE_AT_MOST: Final = 16 << 20
"""Bytes of a file up to which a decoder that runs out of memory means damage, not a machine that is too small."""
_BIG: Final = 50 * MIB
"""Bytes from which Python's own decoder takes seconds, which is worth a remark."""
_PIECE: Final = 1 << 20
"""Bytes that the compiled decoder is given at a time."""


class Refusing(pickle.Unpickler):
    """Python's decoder with everything forbidden that is more than data.

    Args:
        file: The pickle. The walk has found no opcode in it that leads to `persistent_load`: only `_HAND_OVER` does.
        take: Given each full batch of trace events.
    """

    def __init__(self, file: io.BufferedIOBase, take: Callable[[list[Any]], object]) -> None:
        super().__init__(file)
        self._take = take

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuses."""
        raise pickle.UnpicklingError(f"refused: {module}.{name}")

    def persistent_load(self, pid: Any) -> None:
        """Takes a batch of events away, so that they need not all be in memory at once."""
        if type(pid) is list and pid and type(pid[0]) is dict and "action" in pid[0]:
            self._take(pid)


class _Pieces(io.RawIOBase):
    """A file of pieces of memory one after the other, without a copy of the whole."""

    def __init__(self, pieces: Iterator[memoryview]) -> None:
        self._pieces = pieces
        self._piece = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._piece = piece
        count = min(len(buffer), len(self._piece))
        buffer[:count] = self._piece[:count]
        self._piece = self._piece[count:]
        return count


class _Bounded(io.BufferedReader):
    """A file that does not make room for more than it can hold, as a damaged frame's length may ask."""

    most = 0

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > self.most:
            raise EOFError("more than the file holds")
        return super().read(size)


def _pieces(data: memoryview, found: Walk) -> Iterator[memoryview]:
    """The pickle up to its sound end, with a hand-over after each batch where its framing allows to insert one."""
    if found.frames is None:
        yield data[: found.end]
        return
    at = 0
    frames = set(found.frames)
    for place in sorted((*found.frames, *found.batches)):
        yield data[at:place]
        at = place
        if place in frames:
            at += _FRAME_SIZE
        else:
            yield memoryview(_HAND_OVER)
    yield data[at : found.end]


def read_pickle(data: bytes | memoryview) -> Snapshot:
    """Decodes a snapshot pickle of any torch version; the engine that is used never changes the result.

    Args:
        data: The whole pickle, protocols 2 to 5.

    Raises:
        OomctlError: It is no memory snapshot, asks for code, or is too damaged to read anything from.
    """
    view = memoryview(data)
    snapshot = read_compiled(view[start : start + _PIECE] for start in range(0, len(view), _PIECE))
    return read_objects(data) if snapshot is None else snapshot


def read_content(content: Content) -> Snapshot:
    """Decodes an input while it is read where that can be, and never holds the whole then.

    What only Python can read is read again from the start.

    Raises:
        OomctlError: As `read_pickle`, and what reading itself raises.
    """
    if content.again is None or not has_kernel():
        return read_pickle(content.whole())
    with fetched_ahead(content.chunks()) as pieces:
        snapshot = read_compiled(pieces)
    for _ in content.chunks():  # what is left of it tells of damage
        pass
    return read_objects(b"".join(content.again())) if snapshot is None else snapshot


def read_objects(data: bytes | memoryview) -> Snapshot:
    """Decodes a snapshot pickle with Python's own decoder, whatever its layout, or what a damaged one still holds.

    Args:
        data: The whole pickle, protocols 2 to 5.

    Raises:
        OomctlError: As `read_pickle`.
    """
    octets = bytes(data)
    if len(octets) < 2 or octets[0] != 0x80 or not 2 <= octets[1] <= 5:
        raise OomctlError("not a pickle of protocol 2 to 5")
    if len(octets) > _BIG:
        _remark(len(octets))
    found = walk(octets)
    if found.reason not in ("", "truncated"):
        refuse(octets, found)
    enabled = gc.isenabled()
    gc.disable()  # the collector would walk the millions of objects again and again while they are made
    try:
        return _decoded(octets, found)
    finally:
        if enabled:
            gc.enable()


def _remark(size: int) -> None:
    why = "this file's layout is one that the compiled decoder leaves to it"
    if not has_kernel():
        why = "the compiled kernels are switched off or were not built when oomctl was installed"
    warnings.warn(
        OomctlWarning(f"{format_size(size)} are decoded by Python, ten times slower than compiled: {why}"), stacklevel=3
    )


def _decoded(data: bytes, found: Walk) -> Snapshot:
    if not found.reason:
        traces = Traces()
        try:
            objects = _decoder(data, found, traces.take).load()
        except MemoryError:
            if len(data) > _DAMAGE_AT_MOST:
                raise
        except Exception:  # the decoder raises nearly any kind on damaged data
            pass
        else:
            return snapshot_from_objects(objects, traces, size=len(data))
    decoder = _decoder(data, replace(found, batches=()), list.clear)
    try:
        decoder.load()
    except MemoryError:
        if len(data) > _DAMAGE_AT_MOST:
            raise
    except Exception:  # that is why we are here; what it had made by then is in its memo
        pass
    return salvaged(decoder.memo.copy(), found.end, found.reason, len(data))


def _decoder(data: bytes, found: Walk, take: Callable[[list[Any]], object]) -> Refusing:
    file = _Bounded(_Pieces(_pieces(memoryview(data), found)), _BUFFER)
    file.most = len(data) + len(_HAND_OVER) * len(found.batches)
    return Refusing(file, take)
