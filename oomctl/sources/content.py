"""Bytes of an input: read in pieces, hashed on the way, taken out of their containers, never more than a limit."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from oomctl.errors import OomctlError
from oomctl.units import MIB, format_size

HEAD: Final = 64 << 10
"""Bytes that a format is recognised by."""
CHUNK: Final = 1 << 20
DEFAULT_MAX_BYTES: Final = 8 << 30
"""Most bytes of one input, after decompression, that are read unless the user raises it."""
MAX_RATIO: Final = 250
"""Decompressed bytes for each compressed one that are believed: 10 times what snapshots reach; bombs pass 1000."""
RATIO_FLOOR: Final = 64 * MIB


class Content:
    """A run of bytes that can be looked at before it is consumed, once.

    Args:
        chunks: The bytes in pieces.
        containers: Names of the containers that it came out of, outermost first.
        damage: Where the maker of the chunks puts what went wrong on the way; complete once all is consumed.

    Attributes:
        again: Makes the same pieces once more; None where the input can be read only once.
    """

    def __init__(
        self, chunks: Iterable[bytes], containers: tuple[str, ...] = (), damage: list[str] | None = None
    ) -> None:
        self._chunks = iter(chunks)
        self.containers = containers
        self.damage = [] if damage is None else damage
        self.again: Callable[[], Iterable[bytes]] | None = None
        self.head = _take(self._chunks, HEAD)

    def chunks(self) -> Iterator[bytes]:
        """The bytes in pieces of at most about 1 MiB."""
        head, self.head = self.head, b""
        if head:
            yield head
        del head
        yield from self._chunks

    def whole(self) -> bytes:
        """All bytes at once."""
        return b"".join(self.chunks())


def _take(chunks: Iterator[bytes], count: int) -> bytes:
    parts, have = [], 0
    for chunk in chunks:
        parts.append(chunk)
        have += len(chunk)
        if have >= count:
            break
    return b"".join(parts)


class Meter:
    """Counts what goes past, and stops it at a limit.

    Args:
        limit: Most bytes.
        given: Tells how many compressed bytes went in so far; None where nothing was compressed.
    """

    def __init__(self, limit: int, given: Callable[[], int] | None = None) -> None:
        self._limit = limit
        self._given = given
        self.count = 0

    def watch(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The same pieces.

        Raises:
            OomctlError: More came than the limit, or than compression accounts for.
        """
        for chunk in chunks:
            self.count += len(chunk)
            if self.count > self._limit:
                raise OomctlError(
                    f"larger than the limit of {format_size(self._limit)}",
                    "raise it with --max-size if you trust the file and have the memory",
                )
            if self._given is not None and self.count > max(RATIO_FLOOR, MAX_RATIO * self._given()):
                raise OomctlError(
                    f"unpacks to more than {MAX_RATIO} times its size: this looks like a decompression bomb",
                    "unpack it yourself if you trust it",
                )
            yield chunk


class _Decompressor(Protocol):
    """What `bz2.BZ2Decompressor` and `lzma.LZMADecompressor` have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Zlib:
    """zlib's object with the face that bz2's and lzma's have: it keeps what it could not use yet."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(wbits=31)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int = 0) -> bytes:
        out = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        # A full output may leave more in zlib's window although all input is used.
        self.needs_input = not self._inner.unconsumed_tail and len(out) < max_length
        return out


class _Zstd:
    """Either zstd library's object with bz2's face and errors."""

    def __init__(self) -> None:
        try:
            from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14 and later

            self._inner: Any = zstd.ZstdDecompressor()
            self._error: type[Exception] = zstd.ZstdError
            self._bounded = True
        except ImportError:
            try:
                import zstandard  # type: ignore[import-not-found,unused-ignore]
            except ImportError:
                raise OomctlError(
                    "compressed with zstd, which this Python cannot unpack",
                    'pip install "oomctl[zstd]", or unpack it first: zstd -d FILE',
                ) from None
            self._inner = zstandard.ZstdDecompressor().decompressobj()
            self._error = zstandard.ZstdError
            self._bounded = False  # it is fed little at a time instead

    @property
    def eof(self) -> bool:
        return bool(self._inner.eof)

    @property
    def needs_input(self) -> bool:
        return not self._bounded or bool(self._inner.needs_input)

    @property
    def unused_data(self) -> bytes:
        return bytes(self._inner.unused_data)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        try:
            return bytes(self._inner.decompress(data, max_length) if self._bounded else self._inner.decompress(data))
        except self._error as error:
            raise OSError(str(error)) from error


_FORMATS: Final[tuple[tuple[bytes, str, Callable[[], _Decompressor], int], ...]] = (
    (b"\x1f\x8b\x08", "gzip", _Zlib, CHUNK),
    (b"BZh", "bzip2", bz2.BZ2Decompressor, CHUNK),
    (b"\xfd7zXZ\0", "xz", lambda: lzma.LZMADecompressor(memlimit=256 * MIB), CHUNK),
    (b"\x28\xb5\x2f\xfd", "zstd", _Zstd, 4 << 10),
)
"""Magic, name, maker of a decompressor, and bytes it is fed at once."""


def compression(head: bytes) -> str | None:
    """Name of the compression that content with this head is in, or None."""
    return next((name for magic, name, _, _ in _FORMATS if head.startswith(magic)), None)


def decompressed(content: Content, limit: int) -> Content:
    """What is inside compressed content.

    A stream that breaks off or is damaged ends with what came out before; its `damage` then says so.

    Args:
        content: Content whose head names a compression.
        limit: Most bytes that may come out.

    Raises:
        OomctlError: At once or while reading: no decompressor, nothing but damage, too much.
    """
    _, name, make, step = next(f for f in _FORMATS if content.head.startswith(f[0]))
    given = Meter(limit)
    out = Meter(limit, lambda: given.count)
    pieces = (
        chunk[start : start + step] for chunk in given.watch(content.chunks()) for start in range(0, len(chunk), step)
    )
    damage: list[str] = []
    inner = Content(out.watch(_unpack(pieces, name, make, damage)), (*content.containers, name), damage)
    again = content.again
    if again is not None:
        inner.again = lambda: decompressed(Content(again()), limit).chunks()
    return inner


def _unpack(
    pieces: Iterable[bytes], name: str, make: Callable[[], _Decompressor], damage: list[str]
) -> Iterator[bytes]:
    unpacker = make()
    produced = False
    members = 0
    try:
        for piece in pieces:
            data = piece
            while True:
                if unpacker.eof:  # a further member, as `cat a.gz b.gz` makes them; zeros are padding
                    data = data.lstrip(b"\0")
                    if not data:
                        break
                    unpacker = make()
                    members += 1
                out = unpacker.decompress(data, CHUNK)
                if out:
                    produced = True
                    yield out
                if unpacker.eof:
                    data = unpacker.unused_data
                elif unpacker.needs_input:
                    break
                else:
                    data = b""
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
        if not produced:
            raise OomctlError(f"damaged {name} data", "download or copy the file again") from error
        damage.append(f"the {name} data is damaged{f' after part {members}' if members else ''}")
    else:
        if not unpacker.eof:
            if not produced:
                raise OomctlError(f"{name} data that ends early", "download or copy the file again")
            damage.append(f"the {name} data ends early")
