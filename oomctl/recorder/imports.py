"""Waits for the program to import torch, instead of importing it for the program.

An import of our own would read environment variables before the program sets them.
"""

from __future__ import annotations

import contextlib
import importlib.abc
import importlib.machinery
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
    """Lets the others find the module and hangs itself behind its loader.

    It stays until the module has been executed: libraries look whether torch is there long before they import it
    (`importlib.util.find_spec`), and a first import may fail.
    """

    def __init__(self, name: str, call: Callable[[ModuleType], None]) -> None:
        self.name, self.call = name, call

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec that the other finders give, with a loader that calls back."""
        if fullname != self.name or self not in sys.meta_path:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(fullname, path, target) for finder in behind)
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with contextlib.suppress(AttributeError):  # another that waits for it was first
                del loader.exec_module  # the class's own again
            run(module)
            if self in sys.meta_path:
                self.remove()
                self.call(module)

        loader.exec_module = exec_module
        return spec
