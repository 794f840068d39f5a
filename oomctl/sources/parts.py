"""Files wherever they lie: on this machine, in an archive, or in a store that fsspec reaches."""

from __future__ import annotations

import functools
import os
import re
import stat
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, cast

from oomctl.errors import OomctlError

URL: Final = re.compile(r"^[a-z][a-z0-9+.-]*://", re.IGNORECASE)
"""An address as against a path."""


def opened_member(archive: zipfile.ZipFile, member: str | zipfile.ZipInfo) -> BinaryIO:
    """A file in an archive.

    Raises:
        OomctlError: It needs a password.
        KeyError: There is no such file.
    """
    entry = archive.getinfo(member) if isinstance(member, str) else member
    if entry.flag_bits & 1:
        raise OomctlError("the zip is encrypted", "unpack it with its password first and give the files in it")
    return cast("BinaryIO", archive.open(entry))


def opened_file(path: str) -> BinaryIO:
    """A local file, unbuffered; one that is made up while it is read, such as /proc/kmsg, ends where it would wait.

    A FIFO is waited for, as `cat` does: without a writer it would look empty.

    Raises:
        OSError: It cannot be opened.
    """
    file = open(path, "rb", buffering=0)  # noqa: SIM115 (it is the caller's)
    status = os.fstat(file.fileno())
    endless = stat.S_ISREG(status.st_mode) and not status.st_size
    if os.name != "nt" and (endless or (stat.S_ISCHR(status.st_mode) and not file.isatty())):
        os.set_blocking(file.fileno(), False)  # of our own opening of it: nobody else reads through it
    return cast("BinaryIO", file)


def members_of(archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The files in an archive; a name may be anything, also empty."""
    return [m for m in archive.infolist() if not m.filename.endswith("/")]


@functools.lru_cache(2)
def _archive(path: str, size: int, time_ns: int) -> zipfile.ZipFile:
    """An archive that is read member by member; its directory is read once, as long as the file stays the same."""
    return zipfile.ZipFile(path)


@dataclass(frozen=True, slots=True)
class Part:
    """One file, wherever it lies.

    Attributes:
        name: As people are to see it.
        path: Local path or URL of the file, or of the archive that holds it.
        member: Its name in the archive, or "".
    """

    name: str
    path: str
    member: str = ""

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Its bytes.

        Raises:
            OomctlError: It cannot be opened.
        """
        with ExitStack() as stack:
            try:
                if self.member and not URL.match(self.path):
                    status = os.stat(self.path)
                    archive = _archive(self.path, status.st_size, status.st_mtime_ns)
                    file = stack.enter_context(opened_member(archive, self.member))
                else:
                    file = stack.enter_context(opened_at(self.path))
                    if self.member:
                        archive = stack.enter_context(zipfile.ZipFile(file))
                        file = stack.enter_context(opened_member(archive, self.member))
            except (OSError, KeyError, zipfile.BadZipFile, NotImplementedError, RuntimeError) as error:
                raise OomctlError(reason_of(error)) from error
            yield file


def filesystem(url: str) -> tuple[Any, str]:
    """(fsspec's file system, path in it) of an address.

    Raises:
        OomctlError: fsspec, or what it needs for this store, is not installed.
    """
    try:
        import fsspec
    except ImportError:
        raise OomctlError(
            f"{url}: reading from stores needs fsspec", "pip install 'oomctl[cluster]', and the store's own package"
        ) from None
    try:
        fs, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise OomctlError(f"{url}: {reason_of(error)}", "install the package that reaches this store") from error
    return fs, path


@contextmanager
def opened_at(path: str) -> Iterator[BinaryIO]:
    """The bytes of a local path or an address."""
    if not URL.match(path):
        with opened_file(path) as file:
            yield file
        return
    fs, name = filesystem(path)
    try:
        file = fs.open(name, "rb")
    except Exception as error:  # each store raises its own
        raise OomctlError(reason_of(error)) from error
    with file:
        yield file


def reason_of(error: BaseException) -> str:
    """What went wrong, in one line."""
    text = str(getattr(error, "strerror", None) or error) or type(error).__name__
    return text.splitlines()[0][:200]
