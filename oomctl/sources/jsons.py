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
_REPORT: Final = re.compile(rb'"schema"\s*:\s*"oomctl\.report/')


class JsonSource:
    """A JSON object that is a memory snapshot or a report."""

    slug = "json"

    def sniff(self, head: bytes) -> bool:
        """Whether it starts as JSON and names a key that only these have."""
        start = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
        return start in (b"{", b"[") and bool(_SNAPSHOT.search(head) or _REPORT.search(head))

    def read(self, content: Content, place: Place, progress: Progress) -> Findings:
        """Parses it."""
        data = load_json(content.whole())
        if isinstance(data, dict) and str(data.get("schema", "")).startswith("oomctl.report/"):
            return Findings("report", "json", VersionRange(), report=data)
        from oomctl.sources.snapshot_objects import snapshot_from_objects

        snapshot = snapshot_from_objects(data)
        return Findings("snapshot", "json", snapshot.torch, (snapshot,))


def load_json(data: bytes) -> Any:
    """Parses JSON text.

    Frames are made shared objects, as they are in a pickle: most of a snapshot is the same few frames.

    Raises:
        OomctlError: It is no JSON.
    """
    frames: dict[tuple[Any, Any, Any], dict[str, Any]] = {}

    def share(value: dict[str, Any]) -> dict[str, Any]:
        if "filename" not in value or len(value) != 3:
            return value
        try:
            return frames.setdefault((value["filename"], value.get("line"), value.get("name")), value)
        except TypeError:  # a list where a name should be; the snapshot's reader will say so
            return value

    try:
        return json.loads(data, object_hook=share)
    except RecursionError:
        raise OomctlError("JSON nested too deep for a memory snapshot") from None
    except ValueError as error:
        raise OomctlError("damaged JSON: " + str(error).splitlines()[0][:120]) from error
