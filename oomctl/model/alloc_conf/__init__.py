"""The one place that knows the grammar of PYTORCH_CUDA_ALLOC_CONF (allocator options by torch version).

Its parts are loaded on first use: most runs need the settings' values and no linter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oomctl.model.alloc_conf.check import PLATFORMS, ConfCheck, ConfEntry, check_conf, lint
    from oomctl.model.alloc_conf.env import ENV_NAMES, env_name, env_names, export_line, name_issue
    from oomctl.model.alloc_conf.option import Option
    from oomctl.model.alloc_conf.options import OPTIONS
    from oomctl.model.alloc_conf.parse import conf_from_recorded, format_conf, parse_conf
    from oomctl.model.alloc_conf.types import MIB, ROUNDUP_SLOTS, AllocConf, ConfIssue, ParsedConf

__all__ = [
    "ENV_NAMES",
    "MIB",
    "OPTIONS",
    "PLATFORMS",
    "ROUNDUP_SLOTS",
    "AllocConf",
    "ConfCheck",
    "ConfEntry",
    "ConfIssue",
    "Option",
    "ParsedConf",
    "check_conf",
    "conf_from_recorded",
    "env_name",
    "env_names",
    "export_line",
    "format_conf",
    "lint",
    "name_issue",
    "parse_conf",
]

_PARTS = {
    "check": ("PLATFORMS", "ConfCheck", "ConfEntry", "check_conf", "lint"),
    "env": ("ENV_NAMES", "env_name", "env_names", "export_line", "name_issue"),
    "option": ("Option",),
    "options": ("OPTIONS",),
    "parse": ("conf_from_recorded", "format_conf", "parse_conf"),
    "types": ("MIB", "ROUNDUP_SLOTS", "AllocConf", "ConfIssue", "ParsedConf"),
}
_PART_OF = {name: part for part, names in _PARTS.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _PART_OF:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_PART_OF[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
