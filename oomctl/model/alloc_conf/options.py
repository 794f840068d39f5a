"""The table of allocator options: every key that some torch accepts, and those that people try."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from oomctl.model.alloc_conf.device_options import DEVICE_OPTIONS
from oomctl.model.alloc_conf.option import Option
from oomctl.model.alloc_conf.other_options import OTHER_OPTIONS
from oomctl.model.common import Version

OPTIONS: Final[tuple[Option, ...]] = (*DEVICE_OPTIONS, *OTHER_OPTIONS)
"""To add an option: one entry here, and how its value is read in `grammar.py`."""

BY_KEY: Final[Mapping[str, Option]] = {option.key: option for option in OPTIONS}


def known(key: str, torch: Version) -> bool:
    """Whether this version's parser accepts the key."""
    option = BY_KEY.get(key)
    return option is not None and option.known(torch)
