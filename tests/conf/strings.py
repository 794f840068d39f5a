"""Generated settings strings: mostly sound entries, some with one thing wrong, some a soup of tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator

SHARED = (
    "large_segment_size_mb",
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "expandable_segments",
    "pinned_use_background_threads",
    "pinned_max_round_threshold_mb",
    "pinned_max_cached_size_mb",
)
CUDA_ONLY = (
    "backend",
    "release_lock_on_cudamalloc",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
    "per_process_memory_fraction",
    "throw_on_cudamalloc_oom",
    "graph_capture_record_stream_reuse",
)
UNKNOWN = ("max_split_size", "expandable_segment", "roundup_bypass_threshold_mb", "Max_Split_Size_MB", "foo")
NUMBERS = (
    "0", "1", "2", "3", "4", "8", "10", "11", "16", "19", "20", "21", "32", "64", "128", "200", "512", "1024",
    "128MB", "25.7", "-1", "+30", "0x40", "abc", "", "4294967296", "99999999999999999999", "1e3", "17592186044416",
)  # fmt: skip
SHARES = (
    "0.8", "0.5", ".9", "0", "0.0", "1", "1.0", "1.5", "-0.1", "nan", "inf", "1e-3", "0.8x", "80%", "0x.8p0", "1e999",
    "1e-400", "0.999999", "abc", "5e-324",
)  # fmt: skip
FLAGS = ("True", "False", "true", "false", "1", "TRUE", "yes", "")
SOUP = (":", ",", "[", "]", " ", "=", ";", ">", "\t", "True", "128", "0.8", "[1:2]", *SHARED, *CUDA_ONLY, *UNKNOWN)


def _roundup(draw: random.Random) -> str:
    if draw.random() < 0.3:
        return draw.choice(NUMBERS)
    entries = []
    for _ in range(draw.randint(0, 5)):
        interval = draw.choice(
            (">", ">", *(str(1 << i) for i in range(18)), "0", "3", "x", "-1", "9223372036854775808")
        )
        divisions = draw.choice(("0", "1", "2", "4", "8", "16") * 3 + ("3", "abc", "-2"))
        entries.append(f"{interval}:{divisions}")
    return "[" + ",".join(entries) + draw.choice(("]",) * 12 + ("", ",]", "]]"))


def _entry(draw: random.Random, keys: tuple[str, ...]) -> str:
    key = draw.choice(keys)
    if key == "roundup_power2_divisions":
        value = _roundup(draw)
    elif key in ("garbage_collection_threshold", "per_process_memory_fraction"):
        value = draw.choice(SHARES[:3]) if draw.random() < 0.6 else draw.choice(SHARES)
    elif key == "backend":
        value = draw.choice(("native", "cudaMallocAsync", "async"))
    elif key.endswith(("_mb", "_threads")) and "background" not in key:
        value = draw.choice(("21", "32", "128", "512")) if draw.random() < 0.6 else draw.choice(NUMBERS)
    else:
        value = draw.choice(FLAGS[:2]) if draw.random() < 0.7 else draw.choice(FLAGS)
    return f"{key}{draw.choice((':',) * 20 + ('=', ' ', '::', ',', ''))}{value}"


def generate(seed: int, count: int, *, keys: tuple[str, ...] = SHARED * 3 + CUDA_ONLY + UNKNOWN) -> Iterator[str]:
    """`count` strings, always the same for a seed."""
    draw = random.Random(seed)
    for n in range(count):
        if n % 10 == 9:
            yield "".join(draw.choice(SOUP) for _ in range(draw.randint(1, 12)))
            continue
        text = draw.choice((",",) * 12 + (", ", ";", " ", ",,")).join(
            _entry(draw, keys) for _ in range(draw.randint(1, 4))
        )
        if n % 10 == 8 and text:  # one character changed, dropped or doubled
            at = draw.randrange(len(text))
            text = text[:at] + draw.choice(("", text[at] * 2, draw.choice(":,[] =;T1"))) + text[at + 1 :]
        yield text + draw.choice(("",) * 15 + (",", " ", "\n"))
