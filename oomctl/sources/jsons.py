"""JSON: a snapshot saved with `json.dump`, or a report of oomctl's own."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from oomctl.errors import OomctlError
from oomctl.model.common import VersionRange
from oomctl.progress import Progress
from oomctl.sources.base import Findings, Place
from oomctl.sources.content import Content

_SNAPSHOT: Final = re.compile(rb'"(?:segments|device_traces|total_size|segment_type)"\s*:')
_OWN: Final = re.compile(rb'"schema"\s*:\s*"oomctl\.(?:report|diff|culprits|whatif|conf)/')

_LIST, _STRING, _DICT = 64, 60, 240
"""Bytes in memory of an empty list, a short string and a small dict, with the pointer to each."""
_SMALL: Final = 64 << 20
_FACTOR: Final = 6
"""Bytes that lists and dicts may take: this many, and this many for each byte of text."""


class _SwollenError(Exception):
    """Raised inside the parser, which lets it through."""


class JsonSource:
    """A JSON object that is a memory snapshot or a report."""

    slug = "json"

    def sniff(self, head: bytes) -> bool:
        """Whether it starts as JSON and names a key that only these have."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        return start in (b"{", b"[") and bool(_SNAPSHOT.search(head) or _OWN.search(head))

    def read(self, content: Content, place: Place, progress: Progress) -> Findings:
        """Parses it."""
        data = load_json(content.whole())
        schema = str(data.get("schema", "")) if isinstance(data, dict) else ""
        if schema.startswith("oomctl.report/"):
            return Findings("report", "json", VersionRange(), report=data)
        if schema.startswith("oomctl."):
            command = schema.removeprefix("oomctl.").partition("/")[0][:20]
            raise OomctlError(
                f"what oomctl {command} printed, not a snapshot, a log or a report",
                "give what it was made from, or a report that oomctl diagnose saved",
            )
        from oomctl.sources.snapshot_objects import snapshot_from_objects

        snapshot = snapshot_from_objects(data)
        return Findings("snapshot", "json", snapshot.torch, (snapshot,))


def load_json(data: bytes) -> Any:
    """Parses JSON text.

    Frames are made shared objects, as they are in a pickle: most of a snapshot is the same few frames. An empty list
    takes two bytes of text and thirty times as many in memory, so what is made is counted.

    Raises:
        OomctlError: It is no JSON, or it is made of little else than brackets.
    """
    allowed = _SMALL + _FACTOR * len(data)
    made = _LIST * data.count(b"[") + _STRING * data.count(b'",')
    frames: dict[tuple[Any, Any, Any], dict[str, Any]] = {}

    def share(value: dict[str, Any]) -> dict[str, Any]:
        nonlocal made
        if "filename" in value and len(value) == 3:
            try:
                frame = frames.setdefault((value["filename"], value.get("line"), value.get("name")), value)
            except TypeError:  # a list where a name should be; the snapshot's reader will say so
                frame = value
            if frame is not value:
                return frame
        made += _DICT
        if made > allowed:
            raise _SwollenError
        return value

    try:
        if made > allowed:
            raise _SwollenError
        return json.loads(data, object_hook=share)
    except RecursionError:
        raise OomctlError("JSON nested too deep for a memory snapshot") from None
    except _SwollenError:
        raise OomctlError("JSON of little else than brackets: no memory snapshot, and too large in memory") from None
    except ValueError as error:
        raise OomctlError("damaged JSON: " + str(error).splitlines()[0][:120]) from error
