"""The text of the script. What comes from a file stands in it as data only: literals that `repr` and `json` wrote."""

from __future__ import annotations

import base64
import json
import re
import zlib
from collections.abc import Sequence
from typing import Final

from oomctl import __version__
from oomctl.allocator.requests import Op
from oomctl.exports.repro.pattern import Pattern, Step
from oomctl.model.stacks import Frame
from oomctl.units import format_size

READABLE: Final = 3000
"""Steps up to which they are written line by line; more are compressed."""
WIDTH: Final = 100

NAMES: Final = {Op.ALLOC: "alloc", Op.FREE: "free", Op.EMPTY_CACHE: "empty_cache", Op.OOM: "fails"}

_HEAD: Final = '''#!/usr/bin/env python3
"""Reproduces a CUDA out-of-memory failure: the same requests, in the same order, without the program that made them.

Written by oomctl @VERSION@ from a memory snapshot of torch @TORCH@. @COUNT@ requests; the last one, of @SIZE@
(@BYTES@ bytes), must fail while the process may reserve @LIMIT@ (@LIMIT_BYTES@ bytes).
@NOTES@
Needs a GPU with that much free memory, and torch alone:

    python repro.py                          # exit code 0: it failed as it should
    python repro.py --dump snapshot.pickle   # and keeps a snapshot of the failure
"""

import argparse
import functools
import json
import os
import sys
import types

CONF = @CONF@
for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
    os.environ.pop(name, None)
    if CONF:
        os.environ[name] = CONF

import torch  # noqa: E402  (reads the settings when it is imported)

LIMIT = @LIMIT_BYTES@

# Who asked: frames as (file, line, function), and stacks of them, innermost first.
FRAMES = @FRAMES@
STACKS = @STACKS@

# (memory pool, stream) pairs, as recorded; 0 is the default pool or stream.
GROUPS = @GROUPS@

# (what, block, bytes, pair, stack)
'''

_PACKED: Final = """
import base64  # noqa: E402
import zlib  # noqa: E402

STEPS = json.loads(
    zlib.decompress(
        base64.b85decode(
@PACKED@
        )
    )
)
"""

_TAIL: Final = '''

def allocate(chain, depth, size):
    return chain[depth](chain, depth + 1, size) if depth < len(chain) else make(size)  # one line: `frame` counts on it


# No function of Python's, so that the innermost frame is the original one.
make = functools.partial(torch.empty, dtype=torch.uint8, device="cuda")


def frame(file, line, function):
    """`allocate` under another name, so that a recorder sees the stack of the original program."""
    code = allocate.__code__.replace(co_filename=file, co_name=function, co_firstlineno=max(line - 1, 1))
    if hasattr(code, "co_qualname"):
        code = code.replace(co_qualname=function)
    return types.FunctionType(code, globals())


CHAINS = [[frame(*FRAMES[i]) for i in reversed(stack)] for stack in STACKS]
STREAMS = {}
POOLS = {}


def request(size, pair, stack):
    chain = CHAINS[stack] if stack >= 0 else []
    pool, stream = GROUPS[pair]
    if stream and stream not in STREAMS:
        STREAMS[stream] = torch.cuda.Stream()
    if pool and pool not in POOLS:
        POOLS[pool] = torch.cuda.MemPool()
    with torch.cuda.stream(STREAMS.get(stream)):
        if pool:
            with torch.cuda.use_mem_pool(POOLS[pool]):
                return allocate(chain, 0, size)
        return allocate(chain, 0, size)


def main():
    parser = argparse.ArgumentParser(description="Reproduces a CUDA out-of-memory failure.")
    parser.add_argument("--dump", metavar="FILE", help="write a memory snapshot of the failure")
    dump = parser.parse_args().dump
    torch.cuda.init()
    free, total = torch.cuda.mem_get_info()
    if free < LIMIT:
        sys.exit(f"this GPU has {free:,} bytes free, {LIMIT:,} are needed")
    torch.cuda.set_per_process_memory_fraction(LIMIT / total)
    if dump:
        context = "alloc" if STACKS else None
        torch.cuda.memory._record_memory_history(max_entries=4 * len(STEPS) + 1000, context=context, stacks="python")
    blocks = {}
    outcome, number = "served", -1
    for number, (what, block, size, pair, stack) in enumerate(STEPS):
        if what == "alloc":
            try:
                blocks[block] = request(size, pair, stack)
            except torch.OutOfMemoryError as error:
                outcome, message = "failed early", str(error)
                break
        elif what == "free":
            del blocks[block]
        elif what == "empty_cache":
            torch.cuda.empty_cache()
        else:
            try:
                request(size, pair, stack)
            except torch.OutOfMemoryError as error:
                outcome, message = "failed", str(error)
            else:
                outcome = "served"
    reached = outcome == "failed" and number == len(STEPS) - 1
    if dump:
        torch.cuda.memory._dump_snapshot(dump)
    if outcome != "served":
        print(message)
    print(
        json.dumps(
            {
                "reached": reached,
                "outcome": outcome,
                "step": number,
                "steps": len(STEPS),
                "request": STEPS[number][2],
                "allocated": torch.cuda.memory_allocated(),
                "reserved": torch.cuda.memory_reserved(),
                "torch": torch.__version__,
                "gpu": torch.cuda.get_device_name(),
            }
        )
    )
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
'''


def script_of(pattern: Pattern, notes: tuple[str, ...] = ()) -> str:
    """The script as text.

    Args:
        pattern: What it does.
        notes: Sentences for its head; not from a file.
    """
    steps = [(NAMES[step.op], step.key, step.size, step.group, step.stack) for step in _renumbered(pattern)]
    used = sorted({step[4] for step in steps if step[4] >= 0})
    place = {stack: number for number, stack in enumerate(used)}
    steps = [(*step[:4], place.get(step[4], -1)) for step in steps]
    frames: dict[Frame, int] = {}
    stacks = [[frames.setdefault(frame, len(frames)) for frame in pattern.stacks[stack]] for stack in used]
    if not any(stacks):
        stacks, steps = [], [(*step[:4], -1) for step in steps]
    last = pattern.steps[-1].size
    pools = {pool: number for number, pool in enumerate(dict.fromkeys([(0, 0), *(p for p, _ in pattern.groups)]))}
    head = {
        "VERSION": __version__,
        "TORCH": ".".join(map(str, pattern.torch)),
        "COUNT": f"{pattern.requests:,}",
        "SIZE": format_size(last),
        "BYTES": f"{last:,}",
        "LIMIT": format_size(pattern.limit),
        "LIMIT_BYTES": str(pattern.limit),
        "NOTES": "".join(f"\n- {note}" for note in notes) + ("\n" if notes else ""),
        "CONF": repr(pattern.conf),
        "FRAMES": _lines([tuple(frame) for frame in frames]),
        "STACKS": _lines(stacks),
        "GROUPS": _lines([(pools[pool], stream) for pool, stream in pattern.groups]),
    }
    text = _fill(_HEAD, head)
    if len(steps) <= READABLE:
        return text + "STEPS = " + _lines(steps) + "\n" + _TAIL
    packed = base64.b85encode(zlib.compress(json.dumps(steps, separators=(",", ":")).encode(), 9)).decode()
    rows = [packed[i : i + WIDTH] for i in range(0, len(packed), WIDTH)]
    return text + _PACKED.replace("@PACKED@", "\n".join(f"            {row.encode()!r}" for row in rows)) + _TAIL


def _renumbered(pattern: Pattern) -> list[Step]:
    """The steps with blocks numbered from 0 in order of allocation."""
    numbers: dict[int, int] = {}
    made = 0
    steps = []
    for step in pattern.steps:
        if step.op == Op.ALLOC:
            numbers[step.key] = made
            made += 1
        steps.append(step._replace(key=numbers.get(step.key, -1)))
    return steps


def _fill(text: str, values: dict[str, str]) -> str:
    """Puts every value in its place at once: what a value says is no place for another."""
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match[1]], text)


def _lines(values: Sequence[object]) -> str:
    return "[\n" + "".join(f"    {value!a},\n" for value in values) + "]" if values else "[]"
