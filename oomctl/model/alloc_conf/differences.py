"""How the readers of settings strings differ between torch versions: what `grammar.py` imitates, in words."""

from __future__ import annotations

from typing import Final, NamedTuple


class Difference(NamedTuple):
    """One difference.

    Attributes:
        versions: Where it holds, for example "1.10 to 1.13".
        what: What happens there.
        example: A string that shows it, or "".
    """

    versions: str
    what: str
    example: str = ""


DIFFERENCES: Final[tuple[Difference, ...]] = (
    Difference("up to 1.9", "no settings are read"),
    Difference(
        "1.10 to 1.13",
        "entries may be separated by commas or white space; an entry without a colon is ignored silently, and so is "
        "whatever follows a second colon",
        "max_split_size_mb=128",
    ),
    Difference(
        "1.13",
        "roundup_bypass_threshold_mb exists in this version only; 2.0 names it in a warning but refuses it",
        "roundup_bypass_threshold_mb:64",
    ),
    Difference(
        "2.0 to 2.9",
        "separators must be right; only blanks are dropped, also inside words, not tabs or line ends",
        "max_split_size_mb:128;backend:native",
    ),
    Difference(
        "2.0 to 2.9",
        "a list that is not closed is read past its end: some builds raise, others crash",
        "roundup_power2_divisions:[4:2",
    ),
    Difference(
        "2.10 and later",
        "where a separator belongs any token is taken, so that max_split_size_mb,128 works by luck; all white space is "
        "dropped",
        "max_split_size_mb,128",
    ),
    Difference(
        "all",
        "numbers are read by prefix: 128MB is 128, 25.7 is 25, 1GB is 1; a sign is taken, so that -1 becomes huge",
        "max_split_size_mb:128MB",
    ),
    Difference("up to 2.9", "whole numbers have 32 bits; 64 bits from 2.10 on", "max_split_size_mb:4294967296"),
    Difference("up to 2.9", "sizes must be more than 20 MiB; 20 itself is legal from 2.10 on", "max_split_size_mb:20"),
    Difference(
        "2.11 and later",
        "large_segment_size_mb is looked for first, and is the lower bound of max_split_size_mb and "
        "max_non_split_rounding_mb",
        "max_split_size_mb:25,large_segment_size_mb:30",
    ),
    Difference("1.12 and 1.13", "roundup_power2_divisions takes one number, no list", "roundup_power2_divisions:[4:2]"),
    Difference("2.0 to 2.3", "0 is refused inside a roundup list; legal from 2.4 on", "roundup_power2_divisions:[4:0]"),
    Difference(
        "2.0 to 2.9",
        "'>' in a roundup list also overwrites the last size listed before it; from 2.10 on it starts above it",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    ),
    Difference(
        "2.10 and later",
        "'>' alone leaves requests below 2 MiB without rounding; before it held for all sizes",
        "roundup_power2_divisions:[>:8]",
    ),
    Difference(
        "2.9",
        "PYTORCH_ALLOC_CONF is read by a second parser whose values the GPU allocator does not use; use "
        "PYTORCH_CUDA_ALLOC_CONF",
    ),
    Difference("2.10 and later", "PYTORCH_CUDA_ALLOC_CONF, else PYTORCH_ALLOC_CONF; the first that is set wins"),
    Difference("2.10 and later", "a CPU-only build ignores options that it does not know", "no_such_option:1"),
    Difference("2.10 and later", "a memory fraction of exactly 1 does not arm garbage_collection_threshold"),
)
