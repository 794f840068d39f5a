"""Exit codes of every command."""

from __future__ import annotations

from typing import Final

OK: Final = 0
"""A report was made."""

FINDING: Final = 1
"""A finding that `--fail-on` asked about, or an error in checked settings."""

USAGE: Final = 2
"""Wrong usage or input that cannot be read."""

BUG: Final = 3
"""A bug in oomctl."""

INTERRUPTED: Final = 130
"""Ctrl-C."""
