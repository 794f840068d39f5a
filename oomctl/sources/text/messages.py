"""Allocator messages of every torch version and backend: the ones that carry figures.

They are read from text without white space, clause by clause, so that a wrapped, cut or half overwritten message still
gives every figure it shows. The wordings are those of c10's CUDACachingAllocator, CUDAMallocAsyncAllocator,
MPSAllocator, XPUCachingAllocator and torch_npu, releases 0.4 to 2.14.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import islice
from typing import Final

from oomctl.model.log import OomEvent
from oomctl.sources.text import versions
from oomctl.sources.text.base import Findings, Passage, RawEvent
from oomctl.sources.text.squeeze import Squeezed
from oomctl.units import read_size

SIZE: Final = r"(?<!\d)(\d[\d.,]{0,22}(?:bytes?|[KMGTPE]i?B))"
LONGEST: Final = 2600
"""Characters of a squeezed message; many "Process N has" clauses make it long."""
NEAR_BEFORE: Final = 200
"""Characters before a message, on its line, in which an exception or a test is looked for."""
UNLIMITED: Final = 17179869184 << 30
"""All bits set, printed as 17179869184.00 GiB: "not available" or "no limit"."""

_ANCHOR: Final = re.compile(
    r"(?P<oom>(?P<device>CUDA|HIP|XPU|NPU|GPU|MUSA)?outofmemory\.?(?=Triedtoallocate|Allocationwaspre))"
    r"|(?P<mps>MPSbackendoutofmemory)"
    r"|(?P<block>Currentplatformcan?NOTallocatememoryblock[^!]{0,60}!?(?=Triedto))"
    r"|(?P<asynchronous>Allocationondevice(?=\d+would|wouldexceed))"
    r"|(?P<bare>Triedtoallocate(?=\d[\d.]*[KMGT]?i?[Bb](?:ytes)?(?:\.?\((?:GPU|NPU|XPU)|\.GPU\d)))"
    r"|(?P<parenthesis>\((?:GPU|NPU|XPU)\d+;(?=[\d.]+[KMGT]i?Btotalcapac))"
    r"|(?P<headless>(?:GPU|NPU|XPU)\d+hasatotalcapaci?tyof(?=[\d.]+[KMGT]i?B))",
    re.IGNORECASE,
)
_WORDS: Final = ("outofmemory", "triedto", "totalcapac", "allocationondevice", "notallocate")
_CLAUSES: Final[dict[str, re.Pattern[str]]] = {
    "tried_to_allocate": re.compile(rf"(?:Triedtoallocate|Requested:|Requestedsize:){SIZE}", re.I),
    "total_capacity": re.compile(rf"(?:{SIZE}totalcapacity|atotalcapaci?tyof{SIZE}|Devicelimit:{SIZE})", re.I),
    "free": re.compile(rf"(?:[;.]{SIZE}free(?:[;)]|$)|ofwhich{SIZE}isfree|Free\(accordingtoCUDA\):{SIZE})", re.I),
    "allocated": re.compile(
        rf"(?:{SIZE}alreadyallocated|allocatedmemory{SIZE}isallocated|Currentlyallocated:{SIZE}|MPSallocated:{SIZE})",
        re.I,
    ),
    "reserved": re.compile(rf"{SIZE}reservedintotal", re.I),
    "reserved_unallocated": re.compile(rf"{SIZE}isreservedbyPyTorchbut", re.I),
    "cached_unallocated": re.compile(rf"{SIZE}cached", re.I),
    "private_pools": re.compile(rf"with{SIZE}allocatedinprivate", re.I),
    "allowed": re.compile(rf"(?:{SIZE}allowed;|PyTorchlimit\(setbyuser-suppliedmemoryfraction\):{SIZE})", re.I),
    "this_process_in_use": re.compile(rf"thisprocesshas{SIZE}memoryinuse", re.I),
    "other_allocations": re.compile(rf"otherallocations:{SIZE}", re.I),
    "max_allowed": re.compile(rf"maxallowed:{SIZE}", re.I),
}
_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    "tried_to_allocate": ("triedto", "requested"),
    "total_capacity": ("totalcapac", "devicelimit"),
    "free": ("free",),
    "allocated": ("allocated",),
    "reserved": ("reservedin",),
    "reserved_unallocated": ("reservedby",),
    "cached_unallocated": ("cached",),
    "private_pools": ("inprivate",),
    "allowed": ("allowed;", "memoryfraction"),
    "this_process_in_use": ("thisprocess",),
    "other_allocations": ("otheralloc",),
    "max_allowed": ("maxallowed",),
}
"""Words of which a message must hold one before its clause is looked for."""
_PROCESS: Final = re.compile(rf"\bProcess(\d{{1,10}})has{SIZE}memoryin|(?<=[.a-z])Process(\d{{1,10}})has{SIZE}memoryin")
_GPU: Final = re.compile(
    r"(?:\b|(?<=iB)|(?<=bytes))(?:GPU|NPU|XPU)(\d{1,3})(?=;|hasatotal)|Allocationondevice(\d{1,3})would", re.I
)
_ENDS: Final = re.compile(
    r"PYTORCH_(?:CUDA_|HIP_)?ALLOC_CONF(?!=)|optimizing-memory-usage-with-pytorch-cuda-alloc-conf\)?|#environment-variables\)?"
    r"|systemfailure\)\.?|unoccupiedcachedmemory\.?|memoryfraction\):[\d.]+[KMGT]iB|1EBmemory\.?|byPyTorch\)(?!If)|cached\)"
)
_CLASS: Final = re.compile(r"([A-Za-z_][\w.]*(?:Error|Exception|OutOfMemory))\s*[:(]\s*['\"]?\s*$")
_TEST: Final = re.compile(r"([\w/.-]+\.py(?:::[\w\[\].]+)+)-(?:\w+\.)*\w*Error:(?:CUDA|HIP|XPU)?$")
_COUNTED: Final = re.compile(r"(trial|fold|batch|step|epoch|iteration|sample|case)[#:=]?(\d{1,9})", re.IGNORECASE)
_WORDS_BEFORE: Final = re.compile(r"(?:[A-Za-z_][\w.]*(?:Error|Exception|Warning)\b|[:('\"\s\[\]-])+$")


class Messages:
    """Reads the allocators' messages."""

    slug = "messages"

    def read(self, passage: Passage, found: Findings) -> None:
        """Adds one raw event a message."""
        seen: set[tuple[int, int]] = set()
        covered: set[int] = set()
        for squeezed in passage.squeezed:
            if not any(word in squeezed.low for word in _WORDS):
                continue
            anchors = list(_ANCHOR.finditer(squeezed.text))
            for i, anchor in enumerate(anchors):
                line = squeezed.line(anchor.start())
                if not passage.stretch.accepts(line.no):
                    continue
                if anchor["bare"] and i and anchor.start() - anchors[i - 1].end() < 4:
                    continue
                if i and _continues(squeezed.text, anchors[i - 1], anchor):
                    continue
                offset_in_line = anchor.start() - squeezed.starts[squeezed.index(anchor.start())]
                key = (id(line), offset_in_line)
                if key in seen or (id(line) in covered and not line.tag):
                    continue
                seen.add(key)
                if not found.room("messages", len(found.events)):
                    continue
                last = min(anchor.start() + LONGEST, len(squeezed.text))
                for later in islice(anchors, i + 1, None):
                    if _continues(squeezed.text, anchor, later):
                        continue
                    if later["bare"] and later.start() - anchor.end() < 4:
                        continue
                    last = min(last, later.start())
                    break
                raw, body = _event(squeezed, anchor, squeezed.text[anchor.start() : last], found)
                first_index, last_index = squeezed.index(anchor.start()), squeezed.index(anchor.start() + body - 1)
                covered.update(id(other) for other in squeezed.lines[first_index + 1 : last_index + 1])
                found.events.append(raw)


def _continues(text: str, first: re.Match[str], later: re.Match[str]) -> bool:
    """Whether the second anchor stands inside the first one's message, not at the start of one whose head is cut off.

    Such are the parenthesis in "Tried to allocate 2.00 GiB (GPU 0; ..." and the sentence on the GPU's capacity.
    """
    between = text[first.end() : later.start()]
    if later["headless"]:
        return len(between) < NEAR_BEFORE and not (first["parenthesis"] or first["headless"])
    if not later["parenthesis"]:
        return False
    return re.fullmatch(r"(?:Triedtoallocate)?[\d.]*(?:bytes|[KMGTPE]i?B)?\.?", between, re.I) is not None


def _event(squeezed: Squeezed, anchor: re.Match[str], body: str, found: Findings) -> tuple[RawEvent, int]:
    end = _ENDS.search(body)
    if end:
        body = body[: end.end()]
    values: dict[str, int | None] = {}
    low = body.lower()
    for key, pattern in _CLAUSES.items():
        match = pattern.search(body) if any(word in low for word in _NEEDS[key]) else None
        if match:
            values[key] = _bytes(next(group for group in match.groups() if group))
    if values.get("this_process_in_use") == 0:
        values["this_process_in_use"] = None
    processes = tuple(
        (int(m[1] or m[3]), size) for m in _PROCESS.finditer(body) if (size := _bytes(m[2] or m[4])) is not None
    )
    gpu = _GPU.search(body)
    backend = _backend(anchor, body)
    line = squeezed.line(anchor.start())
    before = _before(squeezed, anchor.start())
    near_before = before[-NEAR_BEFORE:]
    exception = _CLASS.search(near_before)
    torch = versions.of_message(body)
    if exception:
        torch = torch & versions.of_exception(exception[1])
    last = squeezed.line(anchor.start() + len(body) - 1)
    event = OomEvent(
        backend=backend,
        gpu=int(gpu[1] or gpu[2]) if gpu else None,
        rank=line.rank if line.rank is not None else found.rank,
        process_in_use=processes[0][1] if processes else None,
        process_pid=processes[0][0] if processes else None,
        processes=processes,
        wording=_wording(anchor, body, values),
        torch=torch,
        line=line.no,
        source=found.source,
        text=_text(squeezed, anchor.start(), anchor.start() + len(body), before),
        **{key: value for key, value in values.items() if value is not None},  # type: ignore[arg-type]
    )
    test = _TEST.search(squeezed.text, max(0, anchor.start() - 300), anchor.start())
    near = list(_COUNTED.finditer(squeezed.text, max(0, anchor.start() - 400), anchor.start()))
    counted = near[-1] if near else None
    if test:
        subject = test[1]
    elif counted:
        subject = f"{counted[1].lower()} {counted[2]}"
    else:
        subject = _WORDS_BEFORE.sub("", near_before).strip()
    return RawEvent(event, subject, numbered=True, tag=line.tag, time=line.time, end=last.no, part=line.part), len(body)


def _bytes(text: str) -> int | None:
    """Bytes of a squeezed size; None for a sentinel or a broken number."""
    size = read_size(text.rstrip(".,"))
    return None if size is None or size >= UNLIMITED else size


def _backend(anchor: re.Match[str], body: str) -> str:
    if anchor["mps"]:
        return "mps"
    if anchor["block"]:
        return "xpu"
    device = (anchor["device"] or "").lower()
    if device in ("hip", "xpu", "npu"):
        return device
    other = re.search(r"\b(NPU|XPU)\d", body[:200])
    return other[1].lower() if other else "cuda"


def _wording(anchor: re.Match[str], body: str, values: dict[str, int | None]) -> str:
    if anchor["mps"]:
        return "mps"
    if anchor["block"]:
        return "single_block_limit"
    if anchor["asynchronous"]:
        return "cudaMallocAsync"
    if "morethan1EB" in body[:80]:
        return "more_than_1EB"
    if "preemptivelyrejected" in body:
        return "preemptive_rejection"
    if values.get("cached_unallocated") is not None:
        return "torch <= 1.3"
    if values.get("reserved") is not None or "totalcapacity;" in body:
        return "torch 1.4-2.0"
    if "hasatotalcapac" in body:
        known = versions.of_message(body)
        return f"torch {known}"
    return "message cut"


def _before(squeezed: Squeezed, offset: int) -> str:
    """The clean text before the offset on its line; where the line starts with it, nothing."""
    index = squeezed.index(offset)
    line, count = squeezed.lines[index], offset - squeezed.starts[index]
    places = _places(line.text)
    return line.text[: places[count - 1] + 1] if 0 < count <= len(places) else ""


@lru_cache(maxsize=4)
def _places(text: str) -> list[int]:
    """Where the characters that are no white space stand."""
    return [place for place, character in enumerate(text) if not character.isspace()]


def _text(squeezed: Squeezed, start: int, end: int, before: str) -> str:
    """The message as it stood, its lines joined, at most 2,000 characters."""
    first, last = squeezed.index(start), squeezed.index(max(start, end - 1))
    parts = [squeezed.lines[i].text for i in range(first, min(last, first + 60) + 1)]
    if parts:
        parts[0] = parts[0][len(before) :]
    return " ".join(part.strip() for part in parts if part.strip())[:2000]
