"""The settings grammar of each torch version, imitated token by token.

Three generations: key-value pairs split by regular expressions (1.10 to 1.13), strict tokens (2.0 to 2.9), and tokens
whose separators are read past without a look (2.10+). Sources: CUDACachingAllocator.cpp (1.10 to 2.0),
CUDAAllocatorConfig.cpp (2.1+), c10/core/AllocatorConfig.{h,cpp} (2.10+).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from oomctl.model.alloc_conf.errors import ConfError
from oomctl.model.alloc_conf.numbers import is_power_of_two, shown, to_double, to_int32, to_uint64
from oomctl.model.alloc_conf.options import BY_KEY, known
from oomctl.model.alloc_conf.types import MIB, ROUNDUP_SLOTS, AllocConf
from oomctl.model.common import Version

MAX_LENGTH: Final = 1 << 16
"""Characters; a longer string is no settings string (Linux allows 128 KiB for one variable)."""

_MAX_MIB: Final = ((1 << 64) - 1) // MIB
_C_SPACE: Final = " \t\n\v\f\r"


@dataclass(slots=True)
class Values:
    """Settings while they are being read; sizes in bytes."""

    expandable_segments: bool = False
    max_split_size: int | None = None
    max_non_split_rounding: int = 20 * MIB
    roundup: list[int] = field(default_factory=lambda: [0] * ROUNDUP_SLOTS)
    bypass: int | None = None
    gc: float = 0.0
    large_segment_size: int = 20 * MIB
    fraction: float | None = None
    throw: bool = False
    backend: str = "native"
    others: list[tuple[str, str]] = field(default_factory=list)

    def frozen(self) -> AllocConf:
        """The settings as a value."""
        last = dict(self.others)  # a repeated key: the last one counts, at the place of the first
        return AllocConf(
            expandable_segments=self.expandable_segments,
            max_split_size=self.max_split_size,
            max_non_split_rounding=self.max_non_split_rounding,
            roundup_power2_divisions=tuple(self.roundup),
            roundup_bypass_threshold=self.bypass,
            garbage_collection_threshold=self.gc,
            large_segment_size=self.large_segment_size,
            per_process_memory_fraction=self.fraction,
            throw_on_cudamalloc_oom=self.throw,
            backend=self.backend,
            others=tuple(last.items()),
        )


def tokenize(text: str, spaces: str) -> list[str]:
    """Keys, values and the separators ``, : [ ]`` as tokens; characters of `spaces` vanish, even inside a word."""
    tokens = re.split(r"([,:\[\]])", text.translate(dict.fromkeys(map(ord, spaces))))
    return [token for token in tokens if token]


class Reader:
    """Reads one string under the rules of one version, index by index as torch does.

    Args:
        text: The settings string.
        torch: (major, minor), at least (2, 0).
        every_key: True for a build whose shared parser skips keys that it does not know (CPU-only builds, 2.10+).
        rocm: True for a ROCm build, which knows one more name of the driver's allocator.
    """

    def __init__(self, text: str, torch: Version, *, every_key: bool = False, rocm: bool = False) -> None:
        self.torch = torch
        self.rocm = rocm
        self.modern = torch >= (2, 10)
        self.tokens = tokenize(text, _C_SPACE if self.modern else " ")
        self.every_key = every_key
        self.values = Values()
        self._number: Callable[[str], int] = to_uint64 if self.modern else to_int32

    def read(self) -> Values:
        """The values in effect.

        Raises:
            ConfError: Torch would raise.
        """
        if not self.modern:
            self._pass(lambda key: known(key, self.torch))
            return self.values
        if self.torch >= (2, 11):
            self._large_segment_first()
        self._pass(lambda key: known(key, self.torch) and BY_KEY[key].shared)
        if not self.every_key:
            self._pass(lambda key: known(key, self.torch) and not BY_KEY[key].shared)
        return self.values

    def _large_segment_first(self) -> None:
        """2.11+: this option is looked for among all tokens before anything else, since others depend on it."""
        i = 0
        while i < len(self.tokens):
            if self.tokens[i] == "large_segment_size_mb":
                i = self._large_segment(self.tokens[i], i)
            i += 1
        self.values.max_non_split_rounding = self.values.large_segment_size

    def _pass(self, mine: Callable[[str], bool]) -> None:
        i = 0
        while i < len(self.tokens):
            key = self.tokens[i]
            if mine(key) and not (key == "large_segment_size_mb" and self.modern):
                i = self._option(key, i)
            elif self.modern and (self.every_key or known(key, self.torch)):
                i = self._skip(i)
            else:
                raise _unknown(key, self.torch)
            if i + 1 < len(self.tokens):
                i += 1
                self._separator(i, ",")
            i += 1

    def _option(self, key: str, i: int) -> int:
        reader = _READERS.get(key)
        try:
            return reader(self, key, i) if reader is not None else self._other(key, i)
        except ConfError as error:
            raise ConfError(error.key or key, error.message, error.says or _missing(key)) from None

    def _separator(self, i: int, wanted: str) -> None:
        """2.0 to 2.9 insist on the separator; 2.10+ only on there being a token."""
        if self.modern:
            self._at(i)
        elif i >= len(self.tokens) or self.tokens[i] != wanted:
            found = shown(self.tokens[i]) if i < len(self.tokens) else "the end"
            says = f"Error parsing CachingAllocator settings, expected {wanted}"
            raise ConfError("", f"expected '{wanted}' but found {found}", says)

    def _at(self, i: int) -> str:
        if i >= len(self.tokens):
            says = "Index out of bounds in ConfigTokenizer" if self.modern else ""
            raise ConfError("", "the string ends where a value was expected; options are written key:value", says)
        return self.tokens[i]

    def _skip(self, i: int) -> int:
        """Skips a key and its value, a list as a whole (2.10+)."""
        i += 2
        if self._at(i) != "[":
            return i
        while i < len(self.tokens) and self.tokens[i] != "]":
            i += 1
        if i >= len(self.tokens):
            raise ConfError("", "a list is not closed by ']'", "Expected closing bracket ']'")
        return i

    def _value(self, i: int) -> tuple[int, str]:
        self._separator(i + 1, ":")
        return i + 2, self._at(i + 2)

    def _bool(self, key: str, token: str) -> bool:
        if token not in ("True", "False"):
            says = "Expected 'True' or 'False'" if self.modern else "Expected a single True/False argument for"
            raise ConfError(key, f"expected True or False (in this spelling) but found {shown(token)}", says)
        return token == "True"

    def _at_least_large(self, key: str, token: str) -> int:
        """Bytes of a size in MiB that must exceed (up to 2.9) or reach (2.10+) the large segment size."""
        size = self._number(token)
        bound = self.values.large_segment_size // MIB
        if size < bound or (size == bound and not self.modern):
            least, sign = ("at least", ">=") if self.modern else ("more than", ">")
            raise ConfError(
                key,
                f"must be {least} {bound}, found {shown(token)}",
                f"CachingAllocator option {key} too small, must be {sign} {bound}",
            )
        return min(size, _MAX_MIB) * MIB

    def _large_segment(self, key: str, i: int) -> int:
        i, token = self._value(i)
        size = self._number(token)
        if size <= 10:
            says = f"CachingAllocator option {key} must be > 10 MB"
            raise ConfError(key, f"must be more than 10, found {shown(token)}", says)
        self.values.large_segment_size = min(size, _MAX_MIB) * MIB
        return i

    def _max_split(self, key: str, i: int) -> int:
        i, token = self._value(i)
        self.values.max_split_size = self._at_least_large(key, token)
        return i

    def _non_split(self, key: str, i: int) -> int:
        i, token = self._value(i)
        self.values.max_non_split_rounding = self._at_least_large(key, token)
        return i

    def _gc(self, key: str, i: int) -> int:
        i, token = self._value(i)
        share = to_double(token)
        _open_share(key, share, token, modern=self.modern)
        self.values.gc = share
        return i

    def _fraction(self, key: str, i: int) -> int:
        i, token = self._value(i)
        share = to_double(token)
        if not 0 <= share <= 1:
            says = "per_process_memory_fraction is invalid, set it in [0.0, 1.0]"
            raise ConfError(key, f"must lie between 0 and 1, found {shown(token)}", says)
        self.values.fraction = share
        return i

    def _expandable(self, key: str, i: int) -> int:
        i, token = self._value(i)
        self.values.expandable_segments = self._bool(key, token)
        return i

    def _throw(self, key: str, i: int) -> int:
        i, token = self._value(i)
        self.values.throw = self._bool(key, token)
        return i

    def _backend(self, key: str, i: int) -> int:
        i, token = self._value(i)
        if token not in ("native", "cudaMallocAsync") and not (self.rocm and token == "hipMallocAsync"):
            says = "Unknown allocator backend, options are native"
            raise ConfError(key, f"must be native or cudaMallocAsync, found {shown(token)}", says)
        self.values.backend = "native" if token == "native" else "cudaMallocAsync"
        return i

    def _roundup(self, key: str, i: int) -> int:
        i, token = self._value(i)
        slots = self.values.roundup
        if token != "[":
            slots[:] = [self._divisions(token, zero=False)] * ROUNDUP_SLOTS
            return i
        first, last = True, 0
        i += 1
        while i < len(self.tokens) and self.tokens[i] != "]":
            interval = self.tokens[i]
            self._separator(i + 1, ":")
            i += 2
            divisions = self._divisions(self._at(i), zero=self.torch >= (2, 4))
            if interval == ">":
                # Up to 2.9 this starts at the last listed slot and so overwrites it.
                start = last + 1 if self.modern else last
                slots[start:] = [divisions] * (ROUNDUP_SLOTS - start)
            else:
                last = self._slot(interval)
                if first:
                    slots[:last] = [divisions] * last
                    first = False
                slots[last] = divisions
            if self._at(i + 1) != "]":
                i += 1
                self._separator(i, ",")
            i += 1
        if self.modern and i >= len(self.tokens):
            raise ConfError(key, "the list is not closed by ']'", "Expected closing bracket ']'")
        return i

    def _divisions(self, token: str, *, zero: bool) -> int:
        divisions = self._number(token)
        if not is_power_of_two(divisions) and not (zero and divisions == 0):
            allowed = "0 or a power of two" if zero else "a power of two"
            raise ConfError("", f"divisions must be {allowed}, found {shown(token)}", "For roundups, the divis")
        return divisions

    def _slot(self, token: str) -> int:
        size = to_uint64(token, "stoull" if self.modern else "stoul")
        if not is_power_of_two(size):
            says = "For roundups, the intervals have to be power of 2"
            raise ConfError("", f"interval sizes (MiB) must be powers of two, found {shown(token)}", says)
        return min(size.bit_length() - 1, ROUNDUP_SLOTS - 1)

    def _other(self, key: str, i: int) -> int:
        """Options without an effect on device memory: checked, then kept as text."""
        i, token = self._value(i)
        if key == "pinned_num_register_threads":
            threads = self._number(token)
            if not is_power_of_two(threads) or threads > 128:
                says = "Number of register threads"
                raise ConfError(key, f"must be a power of two up to 128, found {shown(token)}", says)
        elif key == "pinned_reserve_segment_size_mb":
            if self._number(token) == 0:
                says = "Pinned reserve segment size has to be greater than 0"
                raise ConfError(key, "must be more than 0", says)
        elif key in ("pinned_max_round_threshold_mb", "pinned_max_cached_size_mb"):
            self._number(token)
        elif key == "expandable_segments_reserve_by_class":
            end = self._skip(i - 2)
            token = "".join(self.tokens[i : end + 1])
            i = end
        elif key != "expandable_segments_reserve":
            self._bool(key, token)
        self.values.others.append((key, token))
        return i


_READERS: Final[dict[str, Callable[[Reader, str, int], int]]] = {
    "max_split_size_mb": Reader._max_split,
    "max_non_split_rounding_mb": Reader._non_split,
    "roundup_power2_divisions": Reader._roundup,
    "garbage_collection_threshold": Reader._gc,
    "expandable_segments": Reader._expandable,
    "backend": Reader._backend,
    "per_process_memory_fraction": Reader._fraction,
    "throw_on_cudamalloc_oom": Reader._throw,
}


def read_pairs(text: str, torch: Version) -> Values:
    """Torch 1.10 to 1.13: entries between commas and white space, each split at colons; no value, no effect.

    Raises:
        ConfError: Torch would raise.
    """
    values = Values()
    for entry in re.split(r"[\s,]+", text):
        pair = [part for n, part in enumerate(re.split(":+", entry)) if part or n == 0]
        if len(pair) < 2:
            continue  # silently ignored by these versions
        key, token = pair[0], pair[1]
        if not known(key, torch):
            raise _unknown(key, torch)
        try:
            _read_pair(values, key, token)
        except ConfError as error:
            raise ConfError(error.key or key, error.message, error.says) from None
    return values


def _read_pair(values: Values, key: str, token: str) -> None:
    if key == "garbage_collection_threshold":
        values.gc = to_double(token)
        _open_share(key, values.gc, token, modern=False)
        return
    number = to_int32(token)
    if key == "max_split_size_mb":
        if number <= 20:
            says = "CachingAllocator option max_split_size_mb too small, must be > 20"
            raise ConfError(key, f"must be more than 20, found {shown(token)}", says)
        values.max_split_size = min(number, _MAX_MIB) * MIB
    elif key == "roundup_power2_divisions":
        if not is_power_of_two(number):
            says = "For roundups, the divisons has to be power of 2"
            raise ConfError(key, f"divisions must be a power of two, found {shown(token)}", says)
        values.roundup = [number] * ROUNDUP_SLOTS
    else:
        values.bypass = (number * MIB) % (1 << 64)


def read(text: str, torch: Version, backend: str = "cuda") -> Values:
    """The values that a build of this version would have in effect.

    Args:
        text: The settings string.
        torch: (major, minor).
        backend: "cuda" or "hip".

    Raises:
        ConfError: Torch would raise.
    """
    if len(text) > MAX_LENGTH:
        raise ConfError("", f"longer than {MAX_LENGTH} characters")
    if torch < (1, 10):
        return Values()
    return read_pairs(text, torch) if torch < (2, 0) else Reader(text, torch, rocm=backend == "hip").read()


def _missing(key: str) -> str:
    """What torch 2.0 to 2.9 says where the value is missing."""
    if key in ("backend", "roundup_power2_divisions"):
        return "Error"
    flags = ("expandable_segments", "release_lock_on_cudamalloc", "release_lock_on_hipmalloc")
    return "Expected a single True/False argument for" if key in flags else "Error, expecting"


def _unknown(key: str, torch: Version) -> ConfError:
    clean = "".join(char if char.isprintable() else "?" for char in key[:60])
    says = f"Unrecognized key '{clean}" if torch >= (2, 10) else f"Unrecognized CachingAllocator option: {clean}"
    if torch >= (2, 10) and len(key) <= 60:
        says += "'"
    return ConfError(key, f"this version has no option {shown(key)}", says)


def _open_share(key: str, share: float, token: str, *, modern: bool) -> None:
    if 0 < share < 1:
        return
    size = "is invalid, set it in (0.0, 1.0)" if modern else "set it 0.0~1.0"
    raise ConfError(key, f"must lie between 0 and 1, both excluded, found {shown(token)}", size)
