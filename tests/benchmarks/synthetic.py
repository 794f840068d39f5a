"""Snapshots of any size: a made-up training loop on the simulated allocator, written as a pickler would.

usage: python -m tests.benchmarks.synthetic EVENTS FILE [--no-oom]

Like torch, it gives every allocation a frames list of its own, shared by nothing but its segment or block; that is
what most of a real file's bytes are. Unless told otherwise the run ends in a request that the device has no room for.
"""

from __future__ import annotations

import random
import struct
import sys
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO

from oomctl.allocator.address import Chunks
from oomctl.allocator.blocks import Block
from oomctl.allocator.heap import Heap
from oomctl.allocator.policy import Policy
from oomctl.model.snapshot import DEFAULT_POOL

ALLOC, FREE_REQUESTED, FREE_COMPLETED, SEGMENT_ALLOC, SEGMENT_FREE, OOM = 0, 1, 2, 3, 4, 7
NAMES = {
    ALLOC: "alloc",
    FREE_REQUESTED: "free_requested",
    FREE_COMPLETED: "free_completed",
    SEGMENT_ALLOC: "segment_alloc",
    SEGMENT_FREE: "segment_free",
    OOM: "oom",
}
STREAMS = (0, 0x55D0C0FFEE00)
KEYS = ("action", "addr", "size", "stream", "time_us", "compile_context", "user_metadata", "pool_id", "frames")
LAYERS, SITES, FRAMES = 24, 40, 2000
FRAME_BYTES = 64 << 10


class Recorder(Chunks):
    """The driver, and the list of what happened."""

    def __init__(self) -> None:
        super().__init__()
        self.action, self.stream = array("B"), array("B")
        self.address, self.size, self.list = array("q"), array("q"), array("q")
        self.sites = array("i")
        self.site = 0
        self.on = 0

    def note(self, action: int, address: int, size: int, frames: int) -> None:
        self.action.append(action)
        self.address.append(address)
        self.size.append(size)
        self.stream.append(self.on)
        self.list.append(frames)

    def new_list(self) -> int:
        self.sites.append(self.site)
        return len(self.sites) - 1

    def segment_alloc(self, size: int) -> int:
        address = super().segment_alloc(size)
        self.note(SEGMENT_ALLOC, address, size, self.new_list())
        return address

    def segment_free(self, address: int, size: int) -> None:
        super().segment_free(address, size)
        self.note(SEGMENT_FREE, address, size, self.new_list())


class Program:
    """Allocates and frees as training does: weights that stay, activations of varying length, gradients."""

    def __init__(self, events: int, seed: int = 1) -> None:
        self.random = random.Random(seed)
        self.driver = Recorder()
        self.heap = Heap(Policy(), self.driver)
        self.arenas = [[self.heap.arena(DEFAULT_POOL, small, s) for small in (False, True)] for s in STREAMS]
        self.held: dict[int, tuple[int, int]] = {}
        """Address of each live block -> (requested bytes, its frames list)."""
        self.events = events
        weights = [self.allocate(layer, size) for layer in range(LAYERS) for size in (32 << 20, 24 << 20, 16 << 10)]
        while len(self.driver.action) < events:
            self.step()
        del weights

    def allocate(self, site: int, size: int, on: int = 0) -> Block:
        driver = self.driver
        driver.site, driver.on = site, on
        rounded = max(512, -(-size // 512) * 512)
        block = self.heap.malloc(self.arenas[on][rounded <= 1 << 20], rounded)
        assert block is not None
        frames = driver.new_list()
        driver.note(ALLOC, block.address, size, frames)
        self.held[block.address] = (size, frames)
        return block

    def free(self, site: int, block: Block) -> None:
        driver = self.driver
        driver.site, driver.on = site, STREAMS.index(block.arena.stream)
        size, _ = self.held.pop(block.address)
        frames = driver.new_list()
        driver.note(FREE_REQUESTED, block.address, size, frames)
        driver.note(FREE_COMPLETED, block.address, size, frames)
        self.heap.release(block)

    def step(self) -> None:
        pick = self.random
        length = 128 * pick.randrange(4, 17)
        kept: list[Block] = []
        for layer in range(LAYERS):
            passing: list[Block] = []
            for k in range(SITES // 2):
                size = length * (4096 if k % 3 else 16) * pick.choice((1, 1, 2))
                block = self.allocate(100 * layer + k, size, k % 13 == 12)
                (kept if k % 2 else passing).append(block)
                if len(passing) > 3:
                    self.free(100 * layer + 50 + k, passing.pop(0))
            for block in passing:
                self.free(100 * layer + 75, block)
            if len(self.driver.action) >= self.events:
                break
        while kept:
            block = kept.pop()
            gradient = self.allocate(3000 + len(kept) % 90, length * 4096)
            self.free(4000 + len(kept) % 90, block)
            self.free(5000 + len(kept) % 90, gradient)
            if len(self.driver.action) >= self.events:
                break
        for block in reversed(kept):
            self.free(6000, block)

    def fail(self) -> tuple[int, int]:
        """A request for more than is left on a device with 1 GiB more than is held; its bytes, and those then free."""
        live = sum(size for size, _ in self.held.values())
        self.heap.capacity = self.heap.reserved + (1 << 30)
        size = (self.heap.capacity - live) // 512 * 512
        self.driver.site, self.driver.on = 7000, 0
        assert self.heap.malloc(self.arenas[0][0], size) is None
        return size, self.heap.capacity - self.heap.reserved


class Writer:
    """Opcodes of protocol 4 in frames of about 64 KiB, with every object in the memo, as the C pickler writes them."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.parts: list[bytes] = []
        self.length = 0
        self.count = 0
        self.texts: dict[str, int] = {}
        file.write(b"\x80\x04")

    def put(self, part: bytes, memoised: int = 0) -> None:
        if self.length >= FRAME_BYTES:
            self.flush()
        self.parts.append(part)
        self.length += len(part)
        self.count += memoised

    def flush(self) -> None:
        self.file.write(b"\x95" + struct.pack("<Q", self.length))
        self.file.writelines(self.parts)
        self.parts, self.length = [], 0

    def text(self, value: str) -> None:
        if value in self.texts:
            return self.put(fetch(self.texts[value]))
        self.texts[value] = self.count
        octets = value.encode()
        return self.put(b"\x8c" + bytes((len(octets),)) + octets + b"\x94", 1)

    def value(self, value: Any) -> None:
        if isinstance(value, str):
            self.text(value)
        elif value is None or isinstance(value, bool):
            self.put(b"N" if value is None else b"\x88" if value else b"\x89")
        elif isinstance(value, int):
            self.put(number(value))
        elif isinstance(value, bytes):
            self.put(value)  # opcodes already
        elif isinstance(value, dict):
            self.put(b"}\x94(", 1)
            for key, item in value.items():
                self.text(key)
                self.value(item)
            self.put(b"u")
        else:
            raise TypeError(type(value))


def number(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes((value,))
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -1 << 31 <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    length = value.bit_length() // 8 + 1
    return b"\x8a" + bytes((length,)) + value.to_bytes(length, "little", signed=True)


def fetch(place: int) -> bytes:
    return b"h" + bytes((place,)) if place < 256 else b"j" + struct.pack("<I", place)


def write(program: Program, failed: tuple[int, int] | None, path: str) -> None:
    """Writes what a program did as a snapshot file.

    Args:
        program: Has run.
        failed: What `fail` gave; None for a run that ended well.
        path: Where to.
    """
    pick = random.Random(2)
    stacks = [sorted(pick.sample(range(FRAMES), pick.randrange(18, 36))) for _ in range(7001)]
    with open(path, "wb") as file:
        out = Writer(file)
        frame_at: dict[int, int] = {}
        list_at: dict[int, int] = {}

        def frames_list(which: int) -> None:
            if which in list_at:
                return out.put(fetch(list_at[which]))
            list_at[which] = out.count
            out.put(b"]\x94(", 1)
            for frame in stacks[program.driver.sites[which]]:
                if frame in frame_at:
                    out.put(fetch(frame_at[frame]))
                else:
                    frame_at[frame] = out.count
                    place = f"/opt/app/lib/python3.11/site-packages/part_{frame % 37}/module_{frame % 211}.py"
                    out.value({"name": f"function_{frame}", "filename": place, "line": 10 + frame})
            return out.put(b"e")

        out.put(b"}\x94(", 1)
        out.text("segments")
        _segments(out, program, frames_list)
        out.text("device_traces")
        out.put(b"]\x94]\x94", 2)
        _events(out, program, failed, frames_list)
        out.put(b"a")
        out.text("allocator_settings")
        out.value({"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False})
        out.text("external_annotations")
        out.put(b"]\x94", 1)
        out.put(b"u.")
        out.flush()


def _segments(out: Writer, program: Program, frames_list: Any) -> None:
    driver = program.driver
    made = {driver.address[i]: driver.list[i] for i, action in enumerate(driver.action) if action == SEGMENT_ALLOC}
    out.put(b"]\x94(", 1)
    for address, first in sorted(program.heap.segments.items()):
        blocks = list(_chain(first))
        used = [block for block in blocks if not block.idle]
        out.put(b"}\x94(", 1)
        for key, value in (
            ("device", 0),
            ("address", address),
            ("total_size", sum(block.size for block in blocks)),
            ("allocated_size", sum(block.size for block in used)),
            ("active_size", sum(block.size for block in used)),
            ("requested_size", sum(program.held[block.address][0] for block in used)),
            ("stream", first.arena.stream),
            ("segment_type", "small" if first.arena.pool.is_small else "large"),
        ):
            out.text(key)
            out.value(value)
        out.text("segment_pool_id")
        out.put(b"K\0K\0\x86\x94", 1)
        out.text("is_expandable")
        out.value(False)
        out.text("frames")
        frames_list(made[address])
        out.text("blocks")
        out.put(b"]\x94(", 1)
        for block in blocks:
            requested, frames = program.held.get(block.address, (0, -1)) if not block.idle else (0, -1)
            out.put(b"}\x94(", 1)
            for key, value in (
                ("address", block.address),
                ("size", block.size),
                ("requested_size", requested),
                ("state", "inactive" if block.idle else "active_allocated"),
            ):
                out.text(key)
                out.value(value)
            out.text("frames")
            if frames < 0:
                out.put(b"]\x94", 1)
            else:
                frames_list(frames)
            out.put(b"u")
        out.put(b"eu")
    out.put(b"e")


def _chain(block: Block | None) -> Iterable[Block]:
    while block is not None:
        yield block
        block = block.next


def _events(out: Writer, program: Program, failed: tuple[int, int] | None, frames_list: Any) -> None:
    driver = program.driver
    columns = zip(driver.action, driver.address, driver.size, driver.stream, driver.list, strict=True)
    total = len(driver.action) + bool(failed)
    time = 1_790_000_000_000_000
    row = 0
    for action, address, size, stream, frames in columns:
        if row % 1000 == 0:
            out.put(b"(" if row == 0 else b"e(")
        time += 7 + row % 11
        _event(out, (NAMES[action], address, size, STREAMS[stream], time), KEYS)
        frames_list(frames)
        out.put(b"u")
        row += 1
    if failed:
        if row % 1000 == 0:
            out.put(b"e(")
        keys: Sequence[str] = ("action", "device_free", *KEYS[2:])
        size, free = failed
        _event(out, ("oom", free, size, 0, time + 1), keys)
        driver.site = 7000
        frames_list(driver.new_list())
        out.put(b"u")
    out.put(b"e")
    assert total == row + bool(failed)


def _event(out: Writer, values: Sequence[int | str], keys: Sequence[str]) -> None:
    out.put(b"}\x94(", 1)
    for key, value in zip(keys, values, strict=False):
        out.text(key)
        out.value(value)
    out.text("compile_context")
    out.put(b"\x8c\x03N/A\x94", 1)
    out.text("user_metadata")
    out.text("")
    out.text("pool_id")
    out.put(b"K\0K\0\x86\x94", 1)
    out.text("frames")


def main(arguments: Sequence[str]) -> None:
    """The command line."""
    events, path = int(arguments[0]), arguments[1]
    program = Program(events)
    failed = None if "--no-oom" in arguments else program.fail()
    write(program, failed, path)


if __name__ == "__main__":
    main(sys.argv[1:])
