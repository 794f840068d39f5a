"""A bundle of oomctl's recorder: incident.json, and the folder that it lies in.

The layout is described in `oomctl.recorder.bundle`. What is in incident.json was measured at the failure, so it tells
what a snapshot cannot: the size of the card, the limit, the other processes, the version.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from oomctl.errors import OomctlError
from oomctl.model.common import Skipped, VersionRange
from oomctl.model.log import OomEvent, SmiDevice, SmiProcess, SmiTable, TextFindings
from oomctl.progress import Progress
from oomctl.sources.base import Findings, Place
from oomctl.sources.content import Content
from oomctl.sources.jsons import load_json

SCHEMA: Final = "oomctl.incident/"
INCIDENT: Final = "incident.json"
FILES: Final = (INCIDENT, "snapshot.pickle", "message.txt", "memory_summary.txt", "memory_stats.json")
"""Files of a bundle that are read, in this order; stack.txt is for people, the trace holds the stack of the request."""

_HEAD: Final = re.compile(rb'"schema"\s*:\s*"oomctl\.incident/')
_CONF: Final = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_VERSION: Final = re.compile(r"(\d{1,3})\.(\d{1,3})(?:[.+a-z]|$)")
_MOST: Final = 1 << 62
"""Larger numbers are no bytes."""
_MOST_PROCESSES: Final = 256


def files_of_bundle(folder: str) -> tuple[str, ...]:
    """Paths of a bundle's files in the order of reading; () where the folder is no bundle."""
    if not os.path.isfile(os.path.join(folder, INCIDENT)):
        return ()
    paths = (os.path.join(folder, name) for name in FILES)
    return tuple(path for path in paths if os.path.isfile(path))


class BundleSource:
    """incident.json of a bundle."""

    slug = "bundle"

    def sniff(self, head: bytes) -> bool:
        """Whether it is a JSON object of the incident's schema."""
        return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"{" and bool(_HEAD.search(head[:4096]))

    def read(self, content: Content, place: Place, progress: Progress) -> Findings:
        """Parses it; a message in the bundle is torch's own account, without one the numbers here stand for it."""
        data = load_json(content.whole())
        if not isinstance(data, dict) or not str(data.get("schema", "")).startswith(SCHEMA):
            raise OomctlError("no incident of oomctl", "give the folder that oomctl run wrote")
        torch = _torch(data)
        rank = _int(data, "rank")
        has_message = isinstance(data.get("message"), str)
        event = None if has_message else _event(data, place, rank if rank is not None else place.rank, torch)
        notes = data.get("notes")
        skipped = tuple(
            Skipped("a part of the bundle", _clean(note))
            for note in (notes if isinstance(notes, list) else [])[:20]
            if isinstance(note, str)
        )
        text = TextFindings(
            oom_events=() if event is None else (event,),
            smi=_processes(data, place),
            conf=_conf(data),
            torch=torch,
        )
        return Findings("incident", "json", torch, text=text, skipped=skipped)


def _event(data: Mapping[str, Any], place: Place, rank: int | None, torch: VersionRange) -> OomEvent | None:
    request = _dict(data, "request")
    if data.get("cause") != "oom" or not request:
        return None
    device, memory = _dict(data, "device"), _dict(data, "mem_get_info")
    total = _int(memory, "total")
    if total is None:
        total = _int(device, "total")
    allowed = _int(request, "allowed_or_total")
    allocated, reserved = _int(data, "allocated"), _int(data, "reserved")
    own = [p for p in _rows(data) if p.get("own") is True]
    others = tuple(
        (pid, used)
        for p in _rows(data)
        if p.get("own") is not True and (pid := _int(p, "pid")) is not None and (used := _int(p, "used")) is not None
    )
    return OomEvent(
        backend=_backend(data),
        gpu=_int(device, "index"),
        rank=rank,
        tried_to_allocate=_int(request, "segment_size"),
        total_capacity=total,
        free=_int(request, "device_free"),
        allocated=allocated,
        reserved_unallocated=None if reserved is None or allocated is None else max(0, reserved - allocated),
        allowed=allowed if allowed is not None and total is not None and allowed < total else None,
        this_process_in_use=_int(own[0], "used") if own else None,
        process_pid=others[0][0] if others else None,
        process_in_use=others[0][1] if others else None,
        processes=others,
        wording="incident",
        torch=torch,
        source=place.index,
        time_us=_int(data, "time_us"),
        text="Recorded at the failure; the exception itself was not seen, or the program caught it.",
    )


def _processes(data: Mapping[str, Any], place: Place) -> tuple[SmiTable, ...]:
    card, index = _dict(data, "card"), _int(_dict(data, "device"), "index")
    used, total = _int(card, "used"), _int(card, "total")
    if used is None or total is None or index is None:
        return ()
    name = _clean(str(_dict(data, "device").get("name", "")))
    rows = tuple(
        SmiProcess(index, _int(p, "pid"), "this process" if p.get("own") is True else "", _int(p, "used"))
        for p in _rows(data)
    )
    return (SmiTable((SmiDevice(index, name, used, total),), rows, source=place.index),)


def _rows(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = data.get("processes")
    return [row for row in (rows if isinstance(rows, list) else [])[:_MOST_PROCESSES] if isinstance(row, dict)]


def _torch(data: Mapping[str, Any]) -> VersionRange:
    found = _VERSION.match(str(data.get("torch") or ""))
    if found is None:
        return VersionRange()
    version = int(found[1]), int(found[2])
    return VersionRange(version, version)


def _conf(data: Mapping[str, Any]) -> str | None:
    environment = _dict(data, "environment")
    return next((environment[name][:2000] for name in _CONF if isinstance(environment.get(name), str)), None)


def _backend(data: Mapping[str, Any]) -> str:
    found = data.get("backend")
    return found if found in ("cuda", "hip", "xpu", "npu") else "cuda"


def _dict(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _int(data: Mapping[str, Any], key: str) -> int | None:
    found = data.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < _MOST else None


def _clean(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text[:500])
