"""Optional compiled kernels with the same results as the Python ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final, TypeVar, cast

_Function = TypeVar("_Function", bound=Callable[..., Any])

ENGINE_VARIABLE: Final = "OOMCTL_ENGINE"
"""Environment variable that forces the Python code with the value "pure"."""


def version_line(version: str) -> str:
    """What `oomctl --version` prints: the version and which code does the heavy work.

    Args:
        version: oomctl's own.
    """
    return f"oomctl {version} ({engine()})"


def engine() -> str:
    """Which code does the heavy work here: "compiled" or "pure"."""
    return "pure" if _forced_pure() or find_spec("oomctl._native.decode") is None else "compiled"


def kernel(name: str) -> ModuleType | None:
    """A compiled module, or None where there is none to be had or Python's own code is asked for.

    Args:
        name: "decode", "heap" or "order".
    """
    if _forced_pure():
        return None
    try:
        return import_module(f"oomctl._native.{name}")
    except ImportError:
        return None


def function(module: str, name: str, otherwise: _Function) -> _Function:
    """A kernel's function, or the one of Python's that does the same.

    Args:
        module: See `kernel`.
        name: Of the function in it.
        otherwise: Taken where there is no kernel.
    """
    native = kernel(module)
    return otherwise if native is None else cast("_Function", getattr(native, name))


def give_back_memory() -> None:
    """Gives the system back memory that was freed, between two pieces of work that need much of it."""
    native = kernel("order")
    if native is not None:
        native.give_back_memory()


def _forced_pure() -> bool:
    return os.environ.get(ENGINE_VARIABLE, "").strip().lower() == "pure"
