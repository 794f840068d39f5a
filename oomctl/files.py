"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator

from oomctl.errors import OomctlError


@contextlib.contextmanager
def staged(path: str) -> Iterator[str]:
    """A place to write to beside the target; at the end it is renamed over the target, or removed if anything failed.

    A link is followed; the permissions of an existing target stay.

    Args:
        path: Target, a file that is there or is to be.

    Raises:
        OomctlError: The target cannot be written; nothing of it is left behind.
    """
    target = os.path.realpath(path)
    try:
        mode = mode_of(target)
        if mode is not None and stat.S_ISDIR(mode):
            raise OomctlError(f"cannot write {path}: it is a directory", "give a file name")
        if mode is not None and not stat.S_ISREG(mode):
            raise OomctlError(f"cannot write {path}: it is no file", "give a file name, and send that on")
        if mode is not None and not os.access(target, os.W_OK):
            raise PermissionError(13, "Permission denied")
        handle, temporary = tempfile.mkstemp(prefix=".oomctl-", dir=os.path.dirname(target))
        os.close(handle)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        yield temporary
        descriptor = os.open(temporary, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.chmod(temporary, stat.S_IMODE(mode) if mode is not None else 0o666 & ~_umask())
        os.replace(temporary, target)
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


@contextlib.contextmanager
def staged_folder(path: str) -> Iterator[str]:
    """A folder to write to on the same disk; at the end its files are in the target folder, or nothing is.

    Files of the same names are replaced, others in the target stay; a target that was not there is made only if there
    is something for it.

    Args:
        path: Target, a folder that is there or is to be.

    Raises:
        OomctlError: The target cannot be written; nothing of it is left behind.
    """
    hint = "give another folder"
    try:
        target = parent = os.path.abspath(path)
        while not os.path.lexists(parent):
            parent = os.path.dirname(parent)
        temporary = tempfile.mkdtemp(prefix=".oomctl-", dir=parent)
    except OSError as error:
        raise OomctlError(f"cannot make {path}: {error.strerror or error}", hint) from error
    try:
        yield temporary
        try:
            _moved_into(target, temporary)
        except OSError as error:
            raise OomctlError(f"cannot write into {path}: {error.strerror or error}", hint) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _moved_into(target: str, temporary: str) -> None:
    names = sorted(os.listdir(temporary))
    if not names or os.path.isdir(target):
        for name in names:
            os.replace(os.path.join(temporary, name), os.path.join(target, name))
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.chmod(temporary, 0o777 & ~_umask())
    os.rename(temporary, target)


def unwritable(path: str, error: OSError) -> OomctlError:
    """What to tell about a target that cannot be written."""
    return OomctlError(
        f"cannot write {path}: {error.strerror or error}", "give another folder; nothing was written here"
    )


def mode_of(path: str) -> int | None:
    """Type and permissions of a file, or None where there is none."""
    try:
        return os.stat(path).st_mode
    except FileNotFoundError:
        return None


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
