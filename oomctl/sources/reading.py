"""Inputs as given on the command line into one `Evidence`: open, take out of containers, ask the sources."""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Final

from oomctl.errors import OomctlError
from oomctl.model.common import InputFile, Skipped, VersionRange
from oomctl.model.evidence import Evidence
from oomctl.progress import Progress, silent
from oomctl.sources.base import Findings, Place
from oomctl.sources.bundle import files_of_bundle
from oomctl.sources.content import CHUNK, DEFAULT_MAX_BYTES, Content, Meter, compression, decompressed
from oomctl.sources.looks import GENERAL_HINT, hint_for, is_refused_text, looks_like
from oomctl.sources.parts import members_of, opened_file, opened_member
from oomctl.sources.registry import SOURCES
from oomctl.units import format_size

MAX_DEPTH: Final = 2
"""Containers within each other that are opened, for example a gzip in a zip."""
MAX_MEMBERS: Final = 200
"""Files of one zip that are read."""
_RANK: Final = re.compile(r"(?:rank|local_rank|worker)[ _.=-]?([0-9]{1,5})(?![0-9])", re.IGNORECASE)
_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
NOTHING: Final = "nothing in it is about GPU memory"
"""What is said of a text that was read in vain."""
_CHECKPOINT: Final = "a torch checkpoint (torch.save), not a memory snapshot"


def read_inputs(
    paths: Sequence[str],
    *,
    stdin: BinaryIO | None = None,
    progress: Progress = silent,
    max_bytes: int | None = None,
) -> Evidence:
    """Reads files that belong to one incident.

    Every file is recognised by its content, never by its name, and nothing in a file is ever run.

    Args:
        paths: Files as typed; "-" is the standard input.
        stdin: Where "-" reads from.
        progress: Told which input is being read.
        max_bytes: Most bytes of one input after decompression; None is `DEFAULT_MAX_BYTES`.

    Returns:
        What the inputs prove, in the order given.

    Raises:
        OomctlError: A file is not there or cannot be opened, or none can be used; one that is no use beside others is
            left out and said.
    """
    incident = _Incident(DEFAULT_MAX_BYTES if max_bytes is None else max_bytes, progress)
    troubles: list[OomctlError] = []
    for number, path in enumerate(paths):
        progress(f"reading {path}", number / len(paths))
        try:
            incident.add(path, stdin)
        except OomctlError as error:
            told = OomctlError(f"{_shown(path)}: {error.message}", error.hint)
            if len(paths) == 1 or isinstance(error.__cause__, OSError):  # a name that was mistyped, most likely
                raise told from error
            troubles.append(told)
        except MemoryError:
            raise OomctlError(
                f"{_shown(path)}: needs more memory than this machine gives", "try it on a larger machine"
            ) from None
    progress("reading", 1.0)
    if len(incident.unrelated) == len(incident.inputs) and troubles:
        raise troubles[0]
    if not incident.inputs:
        raise OomctlError("no input", "give a snapshot, a log, or - for the standard input")
    incident.skipped += (Skipped("one of the inputs", error.message, error.hint or "") for error in troubles)
    if len(incident.unrelated) == len(incident.inputs):
        name = incident.unrelated[0]
        raise OomctlError(f"{_shown(incident.inputs[0].path)}: {name}; {NOTHING}", hint_for(name))
    return incident.evidence()


def read_parts(
    parts: Sequence[tuple[str, Callable[[], AbstractContextManager[BinaryIO]]]],
    *,
    progress: Progress = silent,
    max_bytes: int | None = None,
    related: bool = True,
) -> Evidence:
    """Reads files that lie in archives or stores as one incident; one that cannot be used is left out and said.

    Args:
        parts: Names as people are to see them, and what opens each.
        progress: Told which is being read.
        max_bytes: As for `read_inputs`.
        related: Whether texts in which nothing is about memory are an error where there is nothing else.

    Raises:
        OomctlError: None of them can be used.
    """
    incident = _Incident(DEFAULT_MAX_BYTES if max_bytes is None else max_bytes, progress)
    troubles: list[OomctlError] = []
    for number, (name, opened) in enumerate(parts):
        progress(f"reading {name}", number / len(parts))
        try:
            with opened() as file:
                incident._stream(name, file, None)
        except OomctlError as error:
            troubles.append(OomctlError(f"{_shown(name)}: {error.message}", error.hint))
        except (OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            troubles.append(OomctlError(f"{_shown(name)}: {str(error)[:200] or type(error).__name__}"))
    if not incident.inputs:
        raise troubles[0] if troubles else OomctlError("no input")
    if related and len(incident.unrelated) == len(incident.inputs):
        raise troubles[0] if troubles else OomctlError(f"{_shown(incident.inputs[0].path)}: {NOTHING}")
    incident.skipped += (Skipped("one of the inputs", trouble.message, trouble.hint) for trouble in troubles)
    return incident.evidence()


def _shown(path: str) -> str:
    """A path fit for a line of text: control characters and lone surrogates made visible."""
    if path == "-":
        return "standard input"
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in path)


@dataclass
class _Hashed:
    """Bytes on their way from a file, hashed and counted."""

    sha256: Any = field(default_factory=hashlib.sha256)
    size: int = 0

    def watch(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.sha256.update(chunk)
            self.size += len(chunk)
            yield chunk


@dataclass
class _Incident:
    """What has been read so far."""

    limit: int
    progress: Progress
    inputs: list[InputFile] = field(default_factory=list)
    findings: list[Findings] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    unrelated: list[str] = field(default_factory=list)
    """What the inputs look like in which nothing was found."""

    def add(self, path: str, stdin: BinaryIO | None) -> None:
        for part in (files := files_of_bundle(path) if path != "-" else ()):
            self.add(part, stdin)
        if files:
            return
        if path == "-":
            if stdin is None:
                raise OomctlError("no standard input here", "give a file instead")
            self._stream(path, stdin, None)
            return
        try:
            with opened_file(path) as file:
                status = os.fstat(file.fileno())
                if stat.S_ISBLK(status.st_mode):
                    raise OomctlError("a disk device", GENERAL_HINT)
                regular = stat.S_ISREG(status.st_mode)
                self._stream(path, file, status.st_size or None if regular else None)
        except IsADirectoryError:
            raise OomctlError(
                "a directory; directories of ranks cannot be read yet", "give the files in it: oomctl diagnose DIR/*"
            ) from None
        except OSError as error:
            if os.name == "nt" and os.path.isdir(path):
                raise OomctlError("a directory", "give the files in it") from None
            reason = error.strerror or type(error).__name__
            raise OomctlError(reason[0].lower() + reason[1:]) from error
        except ValueError as error:  # a NUL in the path
            raise OomctlError(str(error)) from error

    def _stream(self, path: str, file: Any, size: int | None) -> None:
        if size is not None and size > self.limit:
            raise OomctlError(
                f"{format_size(size)}, and the limit is {format_size(self.limit)}",
                "raise it with --max-size if you trust the file and have the memory",
            )
        hashed = _Hashed()
        content = Content(Meter(self.limit).watch(hashed.watch(_chunks(file))))
        if size is not None:
            content.again = lambda: Meter(self.limit).watch(_chunks_of(path))
        first = len(self.inputs)
        self._content(path, content)
        for _ in content.chunks():  # what a reader left: the hash is of the whole input
            pass
        digest = hashed.sha256.hexdigest()
        for i in range(first, len(self.inputs)):
            if self.inputs[i].path == path or "!" not in self.inputs[i].path:
                self.inputs[i] = replace(self.inputs[i], sha256=digest, size=hashed.size)

    def _content(self, name: str, content: Content) -> None:
        if not content.head:
            raise OomctlError("empty", "was the dump cut short, or the disk full?")
        container = compression(content.head)
        if container or content.head.startswith(_ZIP):
            if len(content.containers) == MAX_DEPTH:
                raise OomctlError(f"more than {MAX_DEPTH} archives within each other", "unpack it first")
            if container:
                self._content(name, decompressed(content, self.limit))
            else:
                self._zip(name, content)
            return
        source = next((s for s in SOURCES if s.sniff(content.head)), None)
        if source is None or is_refused_text(content.head):
            raise OomctlError(*_refusal(content.head))
        head = content.head
        place = Place(name, len(self.inputs), _rank(name))
        found = source.read(content, place, self.progress)
        if found.kind == "unknown":
            self.unrelated.append(looks_like(head) or "a text")
            self.skipped.append(Skipped("one of the inputs", f"{_shown(name)}: {NOTHING}"))
        form = ", ".join((found.format, *reversed(content.containers)))
        self.inputs.append(InputFile(name, found.kind, form, found.torch, None, 0))
        self.findings.append(found)
        self.skipped += found.skipped
        self.skipped += (Skipped("all of the input", f"{_shown(name)}: {d}") for d in content.damage)

    def _zip(self, name: str, content: Content) -> None:
        if re.match(
            rb"PK\x03\x04.{26}[^\0]{0,200}?(?:data\.pkl|\.data/serialization_id|version)", content.head, re.DOTALL
        ):
            raise OomctlError(f"this looks like {_CHECKPOINT}", hint_for("checkpoint"))
        containers = (*content.containers, "zip")
        try:
            packed = content.whole()
            archive_size = len(packed)
            with zipfile.ZipFile(io.BytesIO(packed)) as archive:
                members = [m for m in members_of(archive) if not _is_litter(m.filename)]
                if any(m.filename.endswith(("/data.pkl", "/version")) for m in members):
                    raise OomctlError(f"this looks like {_CHECKPOINT}", hint_for("checkpoint"))
                if len(members) > MAX_MEMBERS:
                    raise OomctlError(
                        f"a zip of {len(members)} files; at most {MAX_MEMBERS} are read", "unpack it and name the files"
                    )
                before = len(self.inputs)
                left = Meter(self.limit, lambda: archive_size)
                for member in members if all(m.flag_bits & 1 for m in members) else ():
                    opened_member(archive, member)  # says that a password is needed
                for member in members:
                    self._member(name, archive, member, containers, left)
                if len(self.inputs) == before:
                    why = f": {self.skipped[-1].reason}" if members else ""
                    raise OomctlError(f"a zip with no snapshot or log in it{why}", GENERAL_HINT)
        except (
            zipfile.BadZipFile,
            NotImplementedError,
            RuntimeError,
            EOFError,
            OSError,
            ValueError,
            zlib.error,
        ) as error:
            raise OomctlError(f"damaged or unsupported zip: {str(error)[:100]}", "unpack it first") from error

    def _member(
        self,
        name: str,
        archive: zipfile.ZipFile,
        member: zipfile.ZipInfo,
        containers: tuple[str, ...],
        left: Meter,
    ) -> None:
        """One file of a zip becomes an input of its own; one that cannot be used does not stop the others."""
        full = f"{name}!{member.filename}"
        hashed = _Hashed()
        try:
            with opened_member(archive, member) as file:
                content = Content(hashed.watch(left.watch(_chunks(file))), containers)
                self._content(full, content)
        except OomctlError as error:
            self.skipped.append(Skipped("a file of the zip", f"{_shown(full)}: {error.message}"))
            return
        if self.inputs and self.inputs[-1].path == full:
            self.inputs[-1] = replace(self.inputs[-1], sha256=hashed.sha256.hexdigest(), size=hashed.size)

    def evidence(self) -> Evidence:
        texts = [f.text for f in self.findings if f.text is not None]
        torch = VersionRange()
        for found in self.findings:
            torch = torch & found.torch
        joined: dict[str, Any] = {
            name: tuple(item for text in texts for item in getattr(text, name)) for name in _TEXT_FIELDS
        }
        return Evidence(
            inputs=tuple(self.inputs),
            snapshots=tuple(s for f in self.findings for s in f.snapshots),
            conf=next((t.conf for t in reversed(texts) if t.conf is not None), None),
            torch=torch,
            skipped=tuple(self.skipped) + tuple(s for t in texts for s in t.skipped),
            reports=tuple(f.report for f in self.findings if f.report is not None),
            **joined,
        )


_TEXT_FIELDS: Final = ("oom_events", "memory_summaries", "memory_stats", "series", "smi", "signs", "tracebacks")


def _chunks(file: Any) -> Iterator[bytes]:
    read: Callable[[int], bytes | None] = file.read
    while chunk := read(CHUNK):
        yield chunk


def _chunks_of(path: str) -> Iterator[bytes]:
    with open(path, "rb", buffering=0) as file:
        yield from _chunks(file)


def _rank(name: str) -> int | None:
    """The rank that a file's name tells, for example 3 for "logs/rank3/stderr.log" or "snapshot_rank_3.pickle"."""
    found = _RANK.findall(name)
    return int(found[-1]) if found else None


def _is_litter(name: str) -> bool:
    """Whether a zip's member is what file managers put there."""
    return name.startswith("__MACOSX/") or name.rsplit("/", 1)[-1] in (".DS_Store", "Thumbs.db", "desktop.ini")


def _refusal(head: bytes) -> tuple[str, str]:
    name = looks_like(head)
    if name is None:
        return "not a memory snapshot or a log: its bytes are of no known kind", GENERAL_HINT
    return f"{name}, not a memory snapshot or a log", hint_for(name)
