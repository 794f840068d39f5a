"""Stable codes of verdicts; `oomctl explain CODE` prints the page of each."""

from __future__ import annotations

from typing import Final

CODES: Final[dict[tuple[str, str | None], str]] = {
    ("no_oom", None): "OOM001",
    ("fragmentation", None): "OOM100",
    ("fragmentation", "split_segments"): "OOM101",
    ("fragmentation", "granule_pinned"): "OOM102",
    ("fragmentation", "stream_stranded"): "OOM103",
    ("fragmentation", "private_pools"): "OOM104",
    ("fragmentation", "rounding"): "OOM105",
    ("leak", None): "OOM201",
    ("transient_peak", None): "OOM300",
    ("transient_peak", "oversized_request"): "OOM301",
    ("transient_peak", "impossible_request"): "OOM304",
    ("transient_peak", "step_growth"): "OOM302",
    ("transient_peak", "first_step"): "OOM303",
    ("capacity", None): "OOM401",
    ("external", None): "OOM500",
    ("external", "other_processes"): "OOM501",
    ("external", "non_pytorch"): "OOM502",
    ("host_oom", None): "OOM601",
    ("not_an_oom", None): "OOM701",
    ("uncertain", None): "OOM901",
}
"""(class, subtype) -> code."""


def code_for(cls: str, subtype: str | None = None) -> str:
    """Code of a verdict; a subtype without a code of its own has its class's."""
    return CODES.get((cls, subtype)) or CODES.get((cls, None)) or CODES[("uncertain", None)]
