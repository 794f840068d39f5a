"""Pickles without code: every global is refused, so nothing in a file can run."""

from __future__ import annotations

import gc
import io
import pickle
from typing import Any, NoReturn

from oomctl.errors import OomctlError
from oomctl.model.snapshot import Snapshot
from oomctl.sources.snapshot_objects import snapshot_from_objects


class _Refusing(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> NoReturn:
        raise OomctlError(f"refused: the pickle asks for {module}.{name}", "a memory snapshot never does")

    def persistent_load(self, pid: Any) -> NoReturn:
        raise OomctlError("refused: the pickle has a persistent id", "this looks like a checkpoint")


def read_pickle(data: bytes) -> Snapshot:
    """Decodes a snapshot pickle of any torch version."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        return snapshot_from_objects(_Refusing(io.BytesIO(data)).load())
    finally:
        if enabled:
            gc.enable()
