"""oomctl: CUDA out-of-memory forensics for PyTorch.

The public API is loaded on first use, so that ``import oomctl`` costs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "OomctlError",
    "__version__",
    "diagnose",
    "diagnose_job",
    "diff",
    "export",
    "holdings",
    "lightning_callback",
    "load",
    "record",
    "render",
    "replay",
    "step",
    "trainer_callback",
]

if TYPE_CHECKING:
    from oomctl.api import diagnose, diagnose_job, diff, export, holdings, load, render, replay
    from oomctl.errors import OomctlError
    from oomctl.recorder import lightning_callback, record, step, trainer_callback

_LAZY = {
    "OomctlError": "oomctl.errors",
    "diagnose": "oomctl.api",
    "diagnose_job": "oomctl.api",
    "diff": "oomctl.api",
    "export": "oomctl.api",
    "holdings": "oomctl.api",
    "lightning_callback": "oomctl.recorder",
    "load": "oomctl.api",
    "record": "oomctl.recorder",
    "render": "oomctl.api",
    "replay": "oomctl.api",
    "step": "oomctl.recorder",
    "trainer_callback": "oomctl.recorder",
}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        from importlib import import_module

        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
