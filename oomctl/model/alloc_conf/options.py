"""The table of allocator options: every key that some torch accepts, and those that people try."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from oomctl.model.alloc_conf.device_options import DEVICE_OPTIONS
from oomctl.model.alloc_conf.option import Option
from oomctl.model.alloc_conf.other_options import OTHER_OPTIONS
from oomctl.model.common import Version

OPTIONS: Final[tuple[Option, ...]] = (*DEVICE_OPTIONS, *OTHER_OPTIONS)
"""To add an option: one entry here, and how its value is read in `grammar.py`."""

BY_KEY: Final[Mapping[str, Option]] = {option.key: option for option in OPTIONS}


def nearest(key: str, torch: Version) -> str | None:
    """The option of this version that a misspelt key most likely means: the only one it begins, else one alike.

    Args:
        key: What was written.
        torch: (major, minor).
    """
    plain = key.lower().replace("-", "_")
    keys = [option.key for option in OPTIONS if option.known(torch)]
    begun = [other for other in keys if other.startswith(plain)] if len(plain) >= 4 else []
    if len(begun) == 1:
        return begun[0]
    near = get_close_matches(plain, keys, 1, 0.7)
    return near[0] if near else None


def known(key: str, torch: Version) -> bool:
    """Whether this version's parser accepts the key."""
    option = BY_KEY.get(key)
    return option is not None and option.known(torch)
