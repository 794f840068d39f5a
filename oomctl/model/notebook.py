"""How values look in a notebook; who makes the HTML says so here, for the model itself renders nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_MAKERS: dict[str, Callable[[Any], str]] = {}


def show_with(kind: str, maker: Callable[[Any], str]) -> None:
    """Names the function that makes the HTML of a type.

    Args:
        kind: Name of the type.
        maker: Takes a value, gives a fragment of HTML that needs no network.
    """
    _MAKERS[kind] = maker


class Shown:
    """A value that notebooks show as HTML, once somebody has named a maker; else as text."""

    __slots__ = ()

    def _repr_html_(self) -> str | None:
        maker = _MAKERS.get(type(self).__name__)
        return None if maker is None else maker(self)
