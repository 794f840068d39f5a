"""Texts of a rank that another one's end stopped: what torch, NCCL, Gloo and launchers print then."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from oomctl.errors import OomctlError
from oomctl.sources.content import CHUNK
from oomctl.sources.parts import Part
from oomctl.sources.ranks import is_text

TAIL: Final = 1 << 20
"""Bytes at the end of a text that are looked at."""
_STOPPED: Final = re.compile(
    rb"Watchdog caught collective|collective operation timeout|DistBackendError|ncclRemoteError|ncclInProgress"
    rb"|remote process exited|NCCL communicator was aborted|(?:Connection (?:reset|closed|refused)|closed) by peer"
    rb"|closing signal SIGTERM|Received (?:15|Signals\.SIGTERM) death signal|SignalException|Terminated\s*$"
    rb"|recvValue failed|Broken pipe.{0,200}TCPStore|TCPStore.{0,200}Broken pipe",
    re.DOTALL,
)


def was_stopped(parts: Iterable[Part]) -> bool:
    """Whether a text among a rank's files ends as one does that lost its peers or was told to end.

    Args:
        parts: The rank's files.
    """
    for part in parts:
        if not is_text(part.name):
            continue
        try:
            with part.opened() as file:
                tail = b""
                while chunk := file.read(CHUNK):
                    tail = (tail + chunk)[-TAIL:]
        except (OomctlError, OSError, EOFError):
            continue  # said where it is read as a whole
        if _STOPPED.search(tail):
            return True
    return False
