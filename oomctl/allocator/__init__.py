"""A simulated CUDACachingAllocator: the rules, the heap, and a trace's requests replayed through it.

Read in this order: `policy` (settings into rules), `blocks`, `heap` and `expandable` (the allocator), `address` (the
driver), `requests`, `growth` and `start` (what a trace tells), `replay`, `selftest` (identity), `whatif`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oomctl.allocator.requests import read_requests
    from oomctl.allocator.selftest import identity
    from oomctl.allocator.whatif import replay_one, what_if
    from oomctl.allocator.workers import MANY_EVENTS, beside, workers_for

__all__ = ["MANY_EVENTS", "beside", "identity", "read_requests", "replay_one", "what_if", "workers_for"]

_LAZY = {
    "MANY_EVENTS": "oomctl.allocator.workers",
    "beside": "oomctl.allocator.workers",
    "identity": "oomctl.allocator.selftest",
    "read_requests": "oomctl.allocator.requests",
    "replay_one": "oomctl.allocator.whatif",
    "what_if": "oomctl.allocator.whatif",
    "workers_for": "oomctl.allocator.workers",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
