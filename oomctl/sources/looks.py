"""Says what a file that oomctl cannot read looks like, for its one line of refusal."""

from __future__ import annotations

import re
from typing import Final

_MAGIC: Final[tuple[tuple[bytes, int, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", 0, "a PNG picture (a screenshot?)"),
    (b"\xff\xd8\xff", 0, "a JPEG picture (a screenshot?)"),
    (b"GIF8", 0, "a GIF picture"),
    (b"WEBP", 8, "a WebP picture"),
    (b"%PDF-", 0, "a PDF document"),
    (b"\x7fELF", 0, "a program or library (ELF)"),
    (b"MZ", 0, "a Windows program"),
    (b"SQLite format 3\0", 0, "an SQLite database"),
    (b"\x89HDF\r\n\x1a\n", 0, "an HDF5 file"),
    (b"\x93NUMPY", 0, "a numpy array (.npy)"),
    (b"PAR1", 0, "a Parquet table"),
    (b"ARROW1", 0, "an Arrow file"),
    (b"GGUF", 0, "model weights (GGUF)"),
    (b"ustar", 257, "a tar archive"),
    (b"7z\xbc\xaf\x27\x1c", 0, "a 7z archive"),
    (b"Rar!\x1a\x07", 0, "a RAR archive"),
    (b"\x04\x22\x4d\x18", 0, "an LZ4 archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", 0, "an old Office document"),
    (b"version https://git-lfs.github.com/spec/", 0, "a Git LFS pointer, not the file itself"),
)
_HINTS: Final = {
    "picture": "oomctl reads the text itself: paste the log, or give the snapshot file",
    "archive": "unpack it first and give oomctl the files in it",
    "Git LFS": "run `git lfs pull` first",
    "SQLite": "give the snapshot that it was made from",
    "weights": "give the memory snapshot or the log of the run",
    "protocol 0": "a memory snapshot is written with protocol 2 or later",
    "checkpoint": "give the file that torch.cuda.memory._dump_snapshot() wrote, or the log of the run",
    "Python script": "give the log of the run, or the snapshot that it wrote",
    "HTML page": "copy the text of the page into a file, or give the snapshot file",
}
GENERAL_HINT: Final = "oomctl reads memory snapshots (torch.cuda.memory._dump_snapshot) and logs as text"
_SAFETENSORS: Final = re.compile(rb".{3}[\0-\x0f]\0\0\0\0\{\"", re.DOTALL)
_TEXT_PICKLE: Final = re.compile(
    rb"(?:\(?(?:[dl]p[0-9]+\n|c\w[\w.]*\n\w+\n)|\((?:lp|dp)|c\w[\w.]*\n\w+\np[0-9]+\n|[\]}]q.[(\]}])", re.DOTALL
)
_SCRIPT: Final = re.compile(
    rb"\A(?:#![^\n]*python|\s*(?:#[^\n]*\n\s*)*(?:\"\"\"|import \w|from [\w.]+ import |def \w+\(|class \w+))"
)


def looks_like(head: bytes) -> str | None:
    """A noun phrase for content by its first bytes, for example "a PNG picture (a screenshot?)"; None if it is unknown.

    Args:
        head: The first bytes, at best 64 KiB.
    """
    for magic, offset, name in _MAGIC:
        if head.startswith(magic, offset):
            return name
    if _SAFETENSORS.match(head):
        return "model weights (safetensors)"
    if is_html(head):
        return "an HTML page"
    if _TEXT_PICKLE.match(head):
        return "a pickle of protocol 0 or 1"
    if not head.strip(b"\0"):
        return "a file of zero bytes only"
    if not is_text(head):
        return None
    return "a Python script" if _SCRIPT.match(head) else "a text"


def hint_for(name: str | None) -> str:
    """What to do about a file that looks like that."""
    return next((hint for word, hint in _HINTS.items() if name is not None and word in name), GENERAL_HINT)


def is_refused_text(head: bytes) -> bool:
    """Whether content reads as text but is of a kind that has nothing to say to a reader of logs."""
    return bool(_TEXT_PICKLE.match(head)) or head.startswith(b"version https://git-lfs")


def is_html(head: bytes) -> bool:
    """Whether content starts as an HTML page does."""
    start = head.removeprefix(b"\xef\xbb\xbf")[:1024].lstrip().lower()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<!--"))


def is_text(head: bytes) -> bool:
    """Whether content reads as text: no zero bytes and few control characters (a torn log may hold some)."""
    if not head or b"\0" in head:
        return False
    odd = len(head) - len(head.translate(None, _CONTROL))
    if odd * 20 > len(head):
        return False
    broken = head.decode("utf-8", "replace").count("\ufffd")
    return broken * 4 <= len(head)


_CONTROL: Final = bytes(set(range(32)) - {7, 8, 9, 10, 12, 13, 27}) + b"\x7f"
