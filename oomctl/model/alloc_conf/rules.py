"""Remarks on a settings string as a whole: what contradicts, what is without effect, what this version gets wrong.

Each rule looks at the options that torch would accept; to add one, write a function and put it into `RULES`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from oomctl.model.alloc_conf.grammar import read
from oomctl.model.alloc_conf.numbers import to_uint64
from oomctl.model.alloc_conf.options import BY_KEY
from oomctl.model.alloc_conf.types import MIB, ROUNDUP_SLOTS, AllocConf, ConfIssue
from oomctl.model.common import Version


@dataclass(frozen=True, slots=True)
class Setting:
    """What a rule may look at.

    Attributes:
        given: Accepted options -> value as written; the last one of a repeated key.
        conf: The values in effect.
        torch: (major, minor).
        platform: linux, wsl, windows, rocm or jetson.
        backend: cuda, hip, xpu or npu.
    """

    given: Mapping[str, str]
    conf: AllocConf
    torch: Version
    platform: str
    backend: str

    @property
    def fraction(self) -> bool:
        """Whether the string itself sets a memory fraction that is in force (1 lifts it, source: 2.10+ allocator)."""
        share = self.conf.per_process_memory_fraction
        return share is not None and share < 1


def _expandable_and_split(s: Setting) -> Iterator[ConfIssue]:
    if not s.conf.expandable_segments or s.conf.max_split_size is None:
        return
    if s.torch < (2, 5):
        text = (
            "together with expandable_segments this torch can stop with an internal assertion "
            "(!block->expandable_segment_) when memory is nearly full; drop one, or use torch 2.5 or later"
        )
    elif s.torch < (2, 12):
        text = (
            "adds nothing to expandable_segments, whose blocks are split anyway, but free blocks of that size are "
            "refused to smaller requests, so reserved memory can grow; drop it"
        )
    else:
        text = (
            "together with expandable_segments reserved memory has been reported to grow without end in this version: "
            "free blocks of that size are refused to smaller requests; drop it"
        )
    yield ConfIssue("warning", "max_split_size_mb", text)


def _gc(s: Setting) -> Iterator[ConfIssue]:
    key = "garbage_collection_threshold"
    if key not in s.given:
        return
    if not s.fraction:
        how = "per_process_memory_fraction below 1, or " if s.torch >= (2, 10) else ""
        text = f"without effect unless a memory fraction is set ({how}torch.cuda.set_per_process_memory_fraction())"
        yield ConfIssue("warning", key, text)
    if s.conf.expandable_segments:
        if s.torch < (2, 5):
            text = (
                "once a fraction arms it, it can hit an internal assertion on expandable segments before torch 2.5; "
                "drop one of the two"
            )
        else:
            text = "leaves expandable segments alone, so it has next to nothing to collect here"
        yield ConfIssue("warning", key, text)


def _non_split(s: Setting) -> Iterator[ConfIssue]:
    if "max_non_split_rounding_mb" in s.given and s.conf.max_split_size is None:
        yield ConfIssue("warning", "max_non_split_rounding_mb", "without effect unless max_split_size_mb is set")


def _small_split(s: Setting) -> Iterator[ConfIssue]:
    split = s.conf.max_split_size
    if split is None or s.conf.expandable_segments:
        return
    if split > 1 << 50:
        text = "so large that it never applies; leave it out"
        yield ConfIssue("warning", "max_split_size_mb", text)
    elif split < 256 * MIB:
        text = (
            "values this small often raise reserved memory, up to fivefold in measured runs; replay it with "
            "`oomctl whatif`, and try expandable_segments first"
            if s.torch >= (2, 1)
            else "values this small often raise reserved memory, up to fivefold in measured runs"
        )
        yield ConfIssue("note", "max_split_size_mb", text)


def _throw(s: Setting) -> Iterator[ConfIssue]:
    if s.conf.throw_on_cudamalloc_oom and not s.fraction:
        yield ConfIssue("warning", "throw_on_cudamalloc_oom", "without effect unless a memory fraction is set")


def _fraction(s: Setting) -> Iterator[ConfIssue]:
    share = s.conf.per_process_memory_fraction
    if share == 0:
        yield ConfIssue("warning", "per_process_memory_fraction", "0 allows no memory at all: every request fails")
    elif share == 1:
        yield ConfIssue("note", "per_process_memory_fraction", "1 is the default: no cap")


def _async(s: Setting) -> Iterator[ConfIssue]:
    if s.conf.backend == "native":
        return
    ignored = [key for key in s.given if key in BY_KEY and BY_KEY[key].native and key != "per_process_memory_fraction"]
    for key in ignored:
        yield ConfIssue("warning", key, "ignored under backend:cudaMallocAsync")
    text = "there are no memory snapshots, no history and few statistics under it, so a failure cannot be explained"
    yield ConfIssue("note", "backend", text)


def _roundup_off(s: Setting) -> Iterator[ConfIssue]:
    key = "roundup_power2_divisions"
    if key not in s.given or any(divisions > 1 for divisions in s.conf.roundup_power2_divisions):
        return
    yield ConfIssue("warning", key, "without effect: 1 division (or 0) means no rounding; use 2, 4, 8 or 16")
    if (1, 12) <= s.torch < (2, 0) and 1 in s.conf.roundup_power2_divisions:
        yield ConfIssue("note", key, "in this version 1 may even leave sizes without the usual rounding to 512 bytes")


_PAIR: Final = re.compile(r"([^,:\[\]]+):([^,:\[\]]+)")


def _roundup_list(s: Setting) -> Iterator[ConfIssue]:
    key = "roundup_power2_divisions"
    text = s.given.get(key, "")
    if not text.startswith("["):
        return
    pairs = [(size.strip(), value.strip()) for size, value in _PAIR.findall(text)]
    rest = next((i for i, (size, _) in enumerate(pairs) if size == ">"), None)
    if rest and s.torch < (2, 10) and tuple(read(f"{key}:{text}", (2, 10)).roundup) != s.conf.roundup_power2_divisions:
        size, divisions = pairs[rest - 1]
        yield ConfIssue(
            "warning",
            key,
            f"up to torch 2.9 '>' also overwrites the size listed before it: {size} MiB gets {pairs[rest][1]} "
            f"divisions, not {divisions}",
        )
    if s.torch >= (2, 10) and rest == 0:
        yield ConfIssue("note", key, "a list that starts with '>' leaves requests below 2 MiB without rounding")
    # Slots of the listed sizes; the first one also fills those below it.
    listed = [min(to_uint64(size).bit_length() - 1, ROUNDUP_SLOTS - 1) for size, _ in pairs if size != ">"]
    top = max(listed, default=0)
    gaps = [1 << slot for slot in range(listed[0] + 1 if listed else 0, top) if slot not in listed]
    if gaps:
        names = ", ".join(map(str, gaps[:4])) + (" ..." if len(gaps) > 4 else "")
        yield ConfIssue("note", key, f"sizes that are left out between listed ones are not rounded ({names} MiB)")
    if rest is None and listed and top < ROUNDUP_SLOTS - 1:
        text = f"sizes above the last listed one are not rounded; add '>:{pairs[-1][1]}' for them"
        yield ConfIssue("note", key, text)


def _roundup_cost(s: Setting) -> Iterator[ConfIssue]:
    coarse = min((d for d in s.conf.roundup_power2_divisions if d > 1), default=0)
    if 0 < coarse <= 4:
        text = f"{coarse} divisions may take up to {100 // coarse}% more than each request asks for"
        yield ConfIssue("note", "roundup_power2_divisions", text)


def _pinned(s: Setting) -> Iterator[ConfIssue]:
    registers = any(
        s.given.get(key) == "True" for key in ("pinned_use_cuda_host_register", "pinned_use_hip_host_register")
    )
    if "pinned_num_register_threads" in s.given and not registers:
        text = "without effect unless pinned_use_cuda_host_register:True is set"
        yield ConfIssue("warning", "pinned_num_register_threads", text)
    largest, kept = s.given.get("pinned_max_round_threshold_mb"), s.given.get("pinned_max_cached_size_mb")
    if largest and kept and largest.isdigit() and kept.isdigit() and int(largest) > int(kept):
        text = "larger than pinned_max_cached_size_mb, which takes precedence; torch warns"
        yield ConfIssue("warning", "pinned_max_round_threshold_mb", text)


def _platform(s: Setting) -> Iterator[ConfIssue]:
    key = "expandable_segments"
    if not s.conf.expandable_segments:
        return
    if s.platform == "windows" and s.torch < (2, 14):
        text = "ignored on Windows before torch 2.14 ('expandable_segments not supported on this platform')"
        yield ConfIssue("warning", key, text)
    elif s.platform == "windows":
        yield ConfIssue("note", key, "new on Windows in torch 2.14, where an assertion (!handles_.at(i)) was reported")
    elif s.platform == "rocm" and s.torch < (2, 12):
        text = "ignored on ROCm before torch 2.12 ('expandable_segments not supported on this platform')"
        yield ConfIssue("warning", key, text)
    elif s.platform == "rocm":
        yield ConfIssue("note", key, "needs ROCm 7.0 or later; one report of corrupted data exists, so check results")
    elif s.platform == "wsl":
        text = "on WSL2 the driver no longer moves this memory to the host when the card is full; it may fail sooner"
        yield ConfIssue("note", key, text)
    elif s.platform == "jetson":
        text = "not verified on Jetson; look at is_expandable in a snapshot to see whether it took effect"
        yield ConfIssue("note", key, text)


def _expandable_sharing(s: Setting) -> Iterator[ConfIssue]:
    if s.conf.expandable_segments and s.torch < (2, 5):
        text = "tensors cannot be shared between processes (CUDA IPC raises) before torch 2.5"
        yield ConfIssue("note", "expandable_segments", text)


def _jetson(s: Setting) -> Iterator[ConfIssue]:
    if s.platform == "jetson" and s.torch < (2, 14):
        text = "on Jetson torch up to 2.13 shows 'NVML_SUCCESS == r INTERNAL ASSERT FAILED' where memory ran out"
        yield ConfIssue("note", "", text)


def _ascend(s: Setting) -> Iterator[ConfIssue]:
    if s.backend != "npu":
        return
    yield ConfIssue(
        "note", "", "torch_npu has a parser of its own; this check knows only the options of the CUDA build"
    )
    if s.conf.expandable_segments and (s.conf.max_split_size is not None or s.conf.garbage_collection_threshold):
        text = "torch_npu refuses it together with max_split_size_mb or garbage_collection_threshold"
        yield ConfIssue("error", "expandable_segments", text)


def _too_old(s: Setting) -> Iterator[ConfIssue]:
    if s.torch < (1, 10):
        yield ConfIssue("error", "", "torch before 1.10 reads no allocator settings at all")


RULES: Final[tuple[Callable[[Setting], Iterator[ConfIssue]], ...]] = (
    _too_old,
    _ascend,
    _platform,
    _expandable_and_split,
    _gc,
    _async,
    _roundup_off,
    _roundup_list,
    _non_split,
    _throw,
    _fraction,
    _pinned,
    _small_split,
    _roundup_cost,
    _expandable_sharing,
    _jetson,
)
