"""The rules that a setting and a torch version lay down for the caching allocator.

Everything here is a pure function of `AllocConf` and the version: how a request is rounded, how large a new segment
is, when a block may be split, what is tried before a request fails. The heap asks and never looks at the settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from oomctl.model.alloc_conf import AllocConf
from oomctl.model.common import Version

MIN_BLOCK: Final = 512
"""Bytes; granularity of all sizes (CUDACachingAllocator `kMinBlockSize`)."""
SMALL_REQUEST: Final = 1 << 20
"""Bytes; rounded requests up to this size live in the small pool (`kSmallSize`)."""
SMALL_SEGMENT: Final = 2 << 20
"""Bytes of every segment of the small pool (`kSmallBuffer`)."""
OWN_SEGMENT: Final = 10 << 20
"""Bytes; from this size on a request gets a segment of its own size (`kMinLargeAlloc`)."""
SEGMENT_STEP: Final = 2 << 20
"""Bytes; such segments are rounded up to a multiple of this (`kRoundLarge`)."""
UNLIMITED: Final = 1 << 62
"""Stands for "no limit" where a size is compared."""
_NPU_PADDING: Final = 32


@dataclass(frozen=True, slots=True)
class Policy:
    """What one setting means to the allocator.

    Attributes:
        expandable: New memory is mapped into growing ranges (torch 2.1+).
        max_split: Bytes; blocks from this size on are neither split nor given to smaller requests. `UNLIMITED` is off.
        max_waste: Bytes that such a block may exceed its request by.
        divisions: Roundup divisions for sizes of 1, 2, 4 ... 32768 MiB.
        roundup_bypass: Bytes above which divisions do not apply (torch 1.13 to 2.0).
        gc_threshold: Share of the allowed memory above which old segments go; 0 is off.
        large_segment: Bytes of segments for requests between 1 and 10 MiB, and of the large expandable granule.
        padding: Bytes added to every request before rounding (Ascend).
        reclaims_in_mempool: Whether a request inside a MemPool context may flush the caches (torch 2.13+).
        rejects_early: The fraction limit fails a request without reclaiming anything (throw_on_cudamalloc_oom).
    """

    expandable: bool = False
    max_split: int = UNLIMITED
    max_waste: int = 20 << 20
    divisions: tuple[int, ...] = (0,) * 16
    roundup_bypass: int = UNLIMITED
    gc_threshold: float = 0.0
    large_segment: int = 20 << 20
    padding: int = 0
    reclaims_in_mempool: bool = False
    rejects_early: bool = False

    def segment_size(self, size: int) -> int:
        """Bytes of the segment that a request of this rounded size would take (`get_allocation_size`)."""
        if size <= SMALL_REQUEST:
            return SMALL_SEGMENT
        if size < OWN_SEGMENT:
            return self.large_segment
        return -(-size // SEGMENT_STEP) * SEGMENT_STEP

    def granule(self, is_small: bool) -> int:
        """Bytes that an expandable range of this pool grows by."""
        return SMALL_SEGMENT if is_small else self.large_segment

    def round(self, requests: NDArray[np.int64]) -> NDArray[np.int64]:
        """Block sizes for requests, both in bytes (`round_size`).

        Args:
            requests: int64[n].
        """
        sizes = requests + self.padding
        plain = np.maximum(-(-sizes // MIN_BLOCK) * MIN_BLOCK, MIN_BLOCK)
        if max(self.divisions) <= 1:
            return plain
        # The power of two at or below the size; sizes stay far below 2**53, where a float would lose bits.
        power = np.frexp(np.maximum(sizes, 1).astype(np.float64))[1].astype(np.int64) - 1
        divisions = np.asarray(self.divisions, np.int64)[np.clip(power - 20, 0, len(self.divisions) - 1)]
        unit = np.maximum((np.int64(1) << power) // np.maximum(divisions, 1), 1)
        rounded = -(-sizes // unit) * unit
        applies = (divisions > 1) & (sizes > MIN_BLOCK * divisions) & (sizes <= self.roundup_bypass)
        return np.where(applies, rounded, plain)

    def round_one(self, request: int) -> int:
        """The block size for one request, in bytes."""
        return int(self.round(np.array([request], np.int64))[0])

    def least_request(self, size: int) -> int:
        """The smallest request, in bytes, that is rounded to this block size."""
        low, high = 1, size
        while low < high:
            middle = (low + high) // 2
            if self.round_one(middle) < size:
                low = middle + 1
            else:
                high = middle
        return low


def policy_of(conf: AllocConf, torch: Version, backend: str = "cuda") -> Policy:
    """The rules of a setting under one torch version.

    Args:
        conf: Effective settings.
        torch: (major, minor).
        backend: "cuda", "xpu" or "npu"; XPU has neither max_split nor garbage collection.
    """
    native = backend != "xpu"
    return Policy(
        expandable=conf.expandable_segments and torch >= (2, 1),
        max_split=conf.max_split_size if conf.max_split_size is not None and native else UNLIMITED,
        max_waste=conf.max_non_split_rounding,
        divisions=conf.roundup_power2_divisions,
        roundup_bypass=UNLIMITED if conf.roundup_bypass_threshold is None else conf.roundup_bypass_threshold,
        gc_threshold=conf.garbage_collection_threshold if native else 0.0,
        large_segment=conf.large_segment_size,
        padding=_NPU_PADDING if backend == "npu" else 0,
        reclaims_in_mempool=torch >= (2, 13),
        rejects_early=conf.throw_on_cudamalloc_oom and torch >= (2, 12),
    )
