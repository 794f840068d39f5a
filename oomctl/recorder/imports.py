"""Waits for the program to import torch, instead of importing it for the program.

An import of our own would read environment variables before the program sets them.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


def when_imported(name: str, call: Callable[[ModuleType], None]) -> Callable[[], None]:
    """Calls back once a top-level module is imported; at once where it is already.

    Args:
        name: Name of the module.
        call: Gets the module; must not raise.

    Returns:
        A function that stops waiting.
    """
    module = sys.modules.get(name)
    if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
        call(module)
        return lambda: None
    finder = _Finder(name, call)
    sys.meta_path.insert(0, finder)
    return finder.remove


class _Finder(importlib.abc.MetaPathFinder):
    """Lets the others find the module and hangs itself behind its loader."""

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self.name, self.call = name, call

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name or self not in sys.meta_path:
            return None
        self.remove()  # so that the search below does not come back here
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            sys.meta_path.insert(0, self)  # not there yet; a later try may find it
            return spec
        loader: Any = spec.loader
        run = loader.exec_module
        call = self.call

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the class's own again
            run(module)
            call(module)

        loader.exec_module = exec_module
        return spec
