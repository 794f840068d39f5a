"""The one place that knows the grammar of PYTORCH_CUDA_ALLOC_CONF (allocator options by torch version)."""

from __future__ import annotations

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
