"""Pieces of an input fetched while earlier ones are worked on: reading, unpacking and hashing leave the GIL."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from queue import Empty, Queue
from threading import Event, Thread
from typing import Final

DEPTH: Final = 4
"""Pieces that wait at most."""
_DONE: Final = None


@contextlib.contextmanager
def fetched_ahead(pieces: Iterable[bytes]) -> Iterator[Iterator[bytes]]:
    """The same pieces, made by a thread of their own.

    What is not taken until the end of the block stays where it is, but for the few pieces that were fetched already.

    Args:
        pieces: Only the thread touches them inside the block; what they raise is raised to the taker.
    """
    waiting: Queue[bytes | BaseException | None] = Queue(DEPTH)
    enough = Event()

    def fetch() -> None:
        last: BaseException | None = _DONE
        try:
            for piece in pieces:
                waiting.put(piece)
                if enough.is_set():
                    return
        except BaseException as error:  # the taker's to handle
            last = error
        waiting.put(last)

    def take() -> Iterator[bytes]:
        while (piece := waiting.get()) is not _DONE:
            if isinstance(piece, BaseException):
                raise piece
            yield piece

    thread = Thread(target=fetch, name="oomctl-ahead", daemon=True)
    thread.start()
    try:
        yield take()
    finally:
        enough.set()
        while thread.is_alive():
            with contextlib.suppress(Empty):
                waiting.get(timeout=0.01)
        thread.join()
