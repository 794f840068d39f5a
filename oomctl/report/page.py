"""What all HTML pages share: templates, and texts made fit to stand inside a page."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from oomctl import _resources
from oomctl.report import charts

if TYPE_CHECKING:
    from jinja2 import Environment


def environment() -> Environment:
    """Templates with everything escaped and no name undefined."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    def load(name: str) -> str:
        return read_template(name)

    made = Environment(
        loader=FunctionLoader(load), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.globals.update(wide=charts.WIDE, high=charts.HIGH)
    return made


def read_template(name: str) -> str:
    """Text of a file among the templates."""
    return _resources.templates().joinpath(name).read_text(encoding="utf-8")


def page_hash(text: str) -> str:
    """What a content security policy names a style or script by."""
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


def embedded(data: str) -> str:
    """JSON text in which nothing can end a script element or start markup."""
    return data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
