"""Where output goes: stdout that may be a closed pipe, stderr for remarks, files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import sys
import tempfile
from collections.abc import Sequence
from typing import TextIO

from oomctl.errors import OomctlError
from oomctl.files import mode_of, staged, unwritable


def write_stdout(text: str) -> None:
    """Writes text to stdout; a reader that went away (``| head``) is no error.

    Args:
        text: What to write; a final newline is added where it lacks one.

    Raises:
        OomctlError: stdout could not be written, for example onto a full disk.
    """
    try:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)
    except OSError as error:
        raise unprintable(error) from error


def unprintable(error: OSError) -> OomctlError:
    """What to tell about a stdout that cannot be written; what it still holds is dropped."""
    silence(sys.stdout)
    return OomctlError(f"cannot write to stdout: {error.strerror or error}")


def write_stderr(text: str) -> None:
    """Writes one remark for people to stderr; never fails."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        silence(sys.stderr)


def one_line(text: str, most: int = 1000) -> str:
    """Text for one line of a terminal, where paths and messages from files may hold line breaks and escapes.

    Args:
        text: Any text.
        most: Characters kept.
    """
    cleaned = "".join(c if c.isprintable() else " " for c in text)
    return cleaned if len(cleaned) <= most else cleaned[:most] + " ..."


def silence(stream: TextIO) -> None:
    """Points a stream whose reader is gone at the null device, so that the flush at exit is quiet."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def write_file(path: str, text: str) -> int:
    """Writes a file whole or not at all: beside the target, then renamed over it.

    A character device and a descriptor of this process, such as /dev/stdout or a shell's ``>(...)``, are written to
    directly; a link is followed.

    Args:
        path: Target.
        text: Contents, written as UTF-8.

    Returns:
        Bytes written.

    Raises:
        OomctlError: The target cannot be written; nothing of it is left behind.
    """
    data = text.encode("utf-8", "replace")
    try:
        direct = _direct(path)
        if direct is not None:
            with open(direct, "wb") as stream:
                stream.write(data)
        else:
            with staged(path) as temporary, open(temporary, "wb") as stream:
                stream.write(data)
    except OSError as error:
        raise unwritable(path, error) from error
    return len(data)


def check_target(path: str, inputs: Sequence[str] = ()) -> None:
    """Finds out before the work is done that its result cannot be written.

    Args:
        path: Target of a later `write_file`.
        inputs: What is read; none of it is overwritten.

    Raises:
        OomctlError: The target cannot be written, or is one of the inputs.
    """
    try:
        target = os.path.realpath(path)  # fails where the working folder was removed
        if target in (os.path.realpath(one) for one in inputs):
            raise OomctlError(f"will not write {path}: it is one of the inputs", "give another name")
        direct = _direct(path)
        if isinstance(direct, int):
            os.close(direct)
        if direct is None:
            handle, temporary = tempfile.mkstemp(prefix=".oomctl-", dir=os.path.dirname(target))
            os.close(handle)
            os.unlink(temporary)
    except OSError as error:
        raise unwritable(path, error) from error


def _direct(path: str) -> str | int | None:
    """What is written to as it is: the path of a device or a descriptor; None for a file, there or not.

    A named pipe would be waited for until somebody reads it, so it is refused; one that this process was handed is not.

    Raises:
        OomctlError: It is there, and no file.
        OSError: It cannot be looked at.
    """
    mode = mode_of(path)
    if mode is not None and stat.S_ISDIR(mode):
        raise OomctlError(f"cannot write {path}: it is a directory", "give a file name")
    if mode is not None and stat.S_ISCHR(mode):
        return path
    if os.path.abspath(path).startswith(("/dev/", "/proc/")):
        descriptor = _descriptor_of(path)
        if descriptor is not None:
            return descriptor
    if mode is not None and not stat.S_ISREG(mode):
        raise OomctlError(f"cannot write {path}: it is no file", "give a file name, or >(command) in bash")
    return None


def _descriptor_of(path: str) -> int | None:
    """A copy of this process's descriptor that /dev/stdout, /dev/fd/N or /proc/self/fd/N stands for."""
    found = re.fullmatch(r"/dev/(?:(stdout)|(stderr)|fd/([0-9]{1,6}))|/proc/(?:self|[0-9]+)/fd/([0-9]{1,6})", path)
    if found is None:
        return None
    number = 1 if found[1] else 2 if found[2] else int(found[3] or found[4])
    there, own = os.stat(path), os.fstat(number)
    return os.dup(number) if (there.st_dev, there.st_ino) == (own.st_dev, own.st_ino) else None
