"""A made-up GPU: runs random programs on the model and records them as torch would."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np

from oomctl.allocator.address import Noted
from oomctl.allocator.blocks import Block
from oomctl.allocator.heap import Heap
from oomctl.allocator.policy import UNLIMITED, policy_of
from oomctl.model.alloc_conf import parse_conf
from oomctl.model.common import VersionRange
from oomctl.model.snapshot import (
    DEFAULT_POOL,
    Action,
    AllocatorSettings,
    Blocks,
    BlockState,
    DeviceSnapshot,
    PoolId,
    Segments,
    Snapshot,
    Trace,
)
from oomctl.model.stacks import Frame, StackTable

TORCH = (2, 11)
PROGRAM, EMPTY_CACHE, FREEING = 0, 1, 2
STACKS = StackTable(
    (Frame("train.py", 3, "main"), Frame("memory.py", 170, "empty_cache"), Frame("train.py", 9, "main")),
    np.array([0, 1, 3, 4], np.int64),
    np.array([0, 1, 0, 2], np.int32),
)


class RecordingHeap(Heap):
    """A heap that records what a flush waits for."""

    machine: Machine

    def free_segment(self, block: Block) -> None:
        self.machine.freed = (block.arena.stream, block.arena.pool.id)
        super().free_segment(block)

    def flush(self) -> None:
        for key, block in self.pending.items():
            request, *owner = self.machine.known[key]
            self.machine.event(Action.FREE_COMPLETED, block.address, request, tuple(owner))
        super().flush()


@dataclass
class Machine:
    """One device; `ops` of a program go through `alloc`, `free`, `defer`, `complete` and `empty_cache`.

    Attributes:
        conf: Settings string.
        limit: Bytes of the memory fraction's cap.
        stacks: Whether events carry stacks.
        pool_ids: Whether events carry pool ids, as from torch 2.12 on.
    """

    conf: str = ""
    limit: int = UNLIMITED
    stacks: bool = True
    pool_ids: bool = False
    rows: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    pools: dict[PoolId, int] = field(default_factory=lambda: {DEFAULT_POOL: 0})
    device_free: dict[int, int] = field(default_factory=dict)
    known: dict[int, tuple[int, int, PoolId]] = field(default_factory=dict)
    live: dict[int, Block] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.policy = policy_of(parse_conf(self.conf, TORCH).conf, TORCH)
        self.heap = RecordingHeap(self.policy, Noted(self.call), fraction=self.limit)
        self.heap.machine = self
        self.stack, self.count = PROGRAM, 0
        self.asker = self.freed = (0, DEFAULT_POOL)

    def event(self, action: Action, address: int, size: int, owner: tuple[int, PoolId] | None = None) -> None:
        """Writes one event; `owner` is (stream, pool id), by default those of the request under way."""
        stream, pool_id = self.asker if owner is None else owner
        code = self.pools.setdefault(pool_id, len(self.pools))
        self.rows.append((int(action), address, size, stream, self.stack if self.stacks else -1, code))

    def call(self, action: Action, address: int, size: int) -> None:
        """Writes a call of the driver; what is given back belongs to the pool that it is taken from."""
        owner = None
        if action == Action.SEGMENT_FREE:
            owner = self.freed
        elif action == Action.SEGMENT_UNMAP:
            below = (region for region in self.heap.regions if region.base <= address)
            arena = max(below, key=lambda region: region.base).first.arena
            owner = (arena.stream, arena.pool.id)
        self.event(action, address, size, owner)

    def alloc(self, request: int, stream: int = 0, pool_id: PoolId = DEFAULT_POOL) -> int | None:
        """Asks for memory; the key of the block, or None after an oom event."""
        size = self.policy.round_one(request)
        self.asker = (stream, pool_id)
        block = self.heap.malloc(self.heap.arena(pool_id, size <= 1 << 20, stream), size)
        if block is None:
            self.device_free[len(self.rows)] = 1 << 40
            self.event(Action.OOM, 0, size)
            return None
        self.count += 1
        self.known[self.count] = (request, stream, pool_id)
        self.live[self.count] = block
        self.event(Action.ALLOC, block.address, request)
        return self.count

    def free(self, key: int) -> None:
        self._free(key)
        self.stack = FREEING
        self.complete(key)
        self.stack = PROGRAM

    def defer(self, key: int) -> None:
        """A free that waits for another stream."""
        self._free(key)
        if not self.stacks:  # without stacks, a completion that happens to come next looks like a plain free
            self.event(Action.SNAPSHOT, 0, 0)

    def _free(self, key: int) -> None:
        block = self.live.pop(key)
        self.heap.pending[key] = block
        self.stack = FREEING
        self.event(Action.FREE_REQUESTED, block.address, self.known[key][0], self.known[key][1:])
        self.stack = PROGRAM

    def complete(self, key: int) -> None:
        block = self.heap.pending.pop(key, None)
        if block is not None:
            self.event(Action.FREE_COMPLETED, block.address, self.known[key][0], self.known[key][1:])
            self.heap.release(block)

    def drop_pool(self, pool_id: PoolId) -> None:
        """A MemPool goes out of use with all its blocks free."""
        for key in [k for k, (_, _, pool) in self.known.items() if pool == pool_id and k in self.live]:
            self.free(key)
        self.stack = EMPTY_CACHE
        self.heap.flush_private(pool_id)
        self.stack = PROGRAM

    def empty_cache(self) -> None:
        self.stack = EMPTY_CACHE
        self.heap.flush()
        self.stack = PROGRAM

    def snapshot(self) -> Snapshot:
        """What `_dump_snapshot` would write now."""
        types = ("u1", "u8", "i8", "u8", "i4", "i4")
        columns = [np.array(c, t) for c, t in zip(zip(*self.rows, strict=True), types, strict=False)]
        trace = None
        if columns:
            pool = columns[5] if self.pool_ids else None
            trace = Trace(*columns[:5], None, pool, None, None, (), dict(self.device_free))
        settings = AllocatorSettings(self.conf, {})
        device = self._device(trace)
        return Snapshot((device,), STACKS, settings, (), VersionRange(TORCH, TORCH), "cuda", (), ())

    def _device(self, trace: Trace | None) -> DeviceSnapshot:
        requests = {id(b): self.known[key][0] for d in (self.live, self.heap.pending) for key, b in d.items()}
        waiting = {id(b) for b in self.heap.pending.values()}
        pools = self.pools
        segments, blocks, first = [], [], [0]
        for run in runs(self.heap):
            arena = run[0].arena
            code = pools.setdefault(arena.pool.id, len(pools))
            expandable = run[0].region is not None
            size = sum(b.size for b in run)
            segments.append((run[0].address, size, arena.stream, code, not arena.pool.is_small, expandable, -1))
            for b in run:
                state = BlockState.ACTIVE_PENDING_FREE if id(b) in waiting else BlockState.ACTIVE_ALLOCATED
                blocks.append((b.address, b.size, requests.get(id(b), 0), BlockState.INACTIVE if b.idle else state, -1))
            first.append(len(blocks))

        def table(rows: list[tuple[int, ...]], types: tuple[str, ...]) -> list[np.ndarray]:
            return [np.array([row[i] for row in rows], t) for i, t in enumerate(types)]

        return DeviceSnapshot(
            0,
            Segments(*table(segments, ("u8", "i8", "u8", "i4", "?", "?", "i4")), np.array(first, np.int64)),
            Blocks(*table(blocks, ("u8", "i8", "i8", "u1", "i4"))),
            tuple(pools),
            trace,
        )


def chains(heap: Heap) -> list[list[Block]]:
    """All blocks of every segment and region, in order."""
    found = []
    for first in [*heap.segments.values(), *(region.first for region in heap.regions)]:
        chain, block = [], first
        while block is not None:
            chain.append(block)
            block = block.next
        found.append(chain)
    return found


def runs(heap: Heap) -> list[list[Block]]:
    """Blocks by segment or mapped range, ascending by address."""
    found: list[list[Block]] = []
    for chain in chains(heap):
        run: list[Block] = []
        for block in chain:
            if block.mapped:
                run.append(block)
            elif run:
                found.append(run)
                run = []
        if run:
            found.append(run)
    return sorted(found, key=lambda run: run[0].address)


SIZES = (1, 400, 512, 3000, 70_000, 1 << 20, (1 << 20) + 1, 3 << 20, 9 << 20, 11 << 20, 31 << 20, 70 << 20, 140 << 20)


def random_program(machine: Machine, seed: int, steps: int, *, pools: bool = False, emptying: bool = True) -> None:
    """Allocates and frees at random: mixed sizes, several streams, frees that wait for another stream.

    Settings that release whole blocks before a flush get no waiting frees: a recording does not tell whether these
    were over before the release or only with the flush.

    Args:
        machine: Runs it.
        seed: Of the dice.
        steps: Calls to make.
        pools: Also use a private pool.
        emptying: Call empty_cache now and then.
    """
    dice = random.Random(seed)
    heap = machine.heap
    for _ in range(steps):
        live = machine.live
        for key in [k for k in heap.pending if dice.random() < 0.2]:
            machine.complete(key)
        roll = dice.random()
        if roll < 0.52 or not live:
            size = dice.choice(SIZES)
            size = max(1, size + dice.randrange(-size // 8, size // 8 + 1))
            private = pools and dice.random() < 0.3
            machine.alloc(size, dice.choice((0, 0, 7)), (1, 0) if private else DEFAULT_POOL)
        elif roll < 0.9:
            machine.free(dice.choice(list(live)))
        elif roll < 0.98 or not emptying:
            waits = machine.policy.max_split >= UNLIMITED and not machine.policy.gc_threshold
            (machine.defer if waits else machine.free)(dice.choice(list(live)))
        else:
            machine.empty_cache()


def cut(snapshot: Snapshot, keep: float) -> Snapshot:
    """The snapshot as a ring buffer would leave it that holds only the last share of the events."""
    device = snapshot.devices[0]
    trace = device.trace
    assert trace is not None
    drop = int(len(trace) * (1 - keep))

    def tail(column: np.ndarray | None) -> np.ndarray | None:
        return None if column is None else column[drop:]

    columns = ("action", "address", "size", "stream", "stack", "time_us", "pool", "context", "metadata")
    shorter = replace(
        trace,
        **{name: tail(getattr(trace, name)) for name in columns},
        device_free={i - drop: free for i, free in trace.device_free.items() if i >= drop},
    )
    return replace(snapshot, devices=(replace(device, trace=shorter),))
