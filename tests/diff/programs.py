"""Small programs as snapshots: stacks, allocations and frees, laid out one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from oomctl.model.common import VersionRange
from oomctl.model.snapshot import (
    Action,
    AllocatorSettings,
    Blocks,
    BlockState,
    DeviceSnapshot,
    Segments,
    Snapshot,
    Trace,
)
from oomctl.model.stacks import Frame, StackTable

Stack = tuple[Frame, ...]


class Op(NamedTuple):
    """An allocation (`size` bytes, by `stack`), or the free of the allocation number `of`."""

    size: int
    stack: Stack = ()
    of: int = -1


def snapshot(ops: Sequence[Op], *, oom: int | None = None, conf: str | None = "", slack: int = 0) -> Snapshot:
    """A snapshot of one device: each block has a segment of its own; `slack` bytes of each are idle."""
    stacks = sorted({op.stack for op in ops if op.stack})
    frames = sorted({frame for stack in stacks for frame in stack})
    number = {frame: i for i, frame in enumerate(frames)}
    table = StackTable(
        tuple(frames),
        np.cumsum([0, *(len(s) for s in stacks)], dtype=np.int64),
        np.array([number[f] for s in stacks for f in s], np.int32),
    )
    index = {stack: i for i, stack in enumerate(stacks)}
    rows: list[tuple[int, int, int, int]] = []
    live: dict[int, tuple[int, int, int, int]] = {}
    cursor, made = 1 << 21, 0
    addresses: dict[int, tuple[int, int, int]] = {}
    for op in ops:
        if op.of >= 0:
            address, size, stack = addresses[op.of]
            for action in (Action.FREE_REQUESTED, Action.FREE_COMPLETED):
                rows.append((action, address, size, stack))
            del live[op.of]
            continue
        stack, rounded = index.get(op.stack, -1), max(-(-op.size // 512) * 512, 512)
        rows.append((Action.SEGMENT_ALLOC, cursor, rounded + slack, stack))
        rows.append((Action.ALLOC, cursor, op.size, stack))
        addresses[made] = (cursor, op.size, stack)
        live[made] = (cursor, op.size, rounded, stack)
        made, cursor = made + 1, cursor + (1 << 21) * (1 + (rounded + slack) // (1 << 21))
    if oom is not None:
        rows.append((Action.OOM, 0, oom, index.get(ops[-1].stack, -1) if ops else -1))
    segments = [
        (a, size + slack, s)
        for op, (a, _, s) in addresses.items()
        for size in [max(-(-_size(ops, op) // 512) * 512, 512)]
    ]
    held = {a: (size, rounded, s) for a, size, rounded, s in live.values()}
    block_rows: list[tuple[int, int, int, int, int]] = []
    first = [0]
    for a, size, _ in segments:
        if a in held:
            block_rows.append((a, held[a][1], held[a][0], BlockState.ACTIVE_ALLOCATED, held[a][2]))
            if slack:
                block_rows.append((a + held[a][1], slack, 0, BlockState.INACTIVE, -1))
        else:
            block_rows.append((a, size, 0, BlockState.INACTIVE, -1))
        first.append(len(block_rows))
    n = len(rows)
    columns = [np.array([row[k] for row in rows], t) for k, t in enumerate((np.uint8, np.uint64, np.int64, np.int32))]
    trace = Trace(
        columns[0], columns[1], columns[2], np.zeros(n, np.uint64), columns[3], np.arange(n, dtype=np.int64) + 10**15,
        None, None, None, (), {n - 1: 0} if oom is not None else {},
    )  # fmt: skip
    k = len(segments)
    types = (np.uint64, np.int64, np.int64, np.uint8, np.int32)
    blocks = [np.array([row[i] for row in block_rows], t) for i, t in enumerate(types)]
    device = DeviceSnapshot(
        0,
        Segments(
            np.array([s[0] for s in segments], np.uint64), np.array([s[1] for s in segments], np.int64),
            np.zeros(k, np.uint64), np.zeros(k, np.int32), np.ones(k, bool), np.zeros(k, bool),
            np.array([s[2] for s in segments], np.int32), np.array(first, np.int64),
        ),
        Blocks(*blocks),
        ((0, 0),),
        trace if n else None,
    )  # fmt: skip
    settings = None if conf is None else AllocatorSettings(conf, {})
    return Snapshot((device,), table, settings, (), VersionRange((2, 11), (2, 11)), "cuda", (), ())


def _size(ops: Sequence[Op], number: int) -> int:
    return [op for op in ops if op.of < 0][number].size


FRAMES = st.builds(
    Frame,
    st.sampled_from(["/a/model.py", "/a/train.py", "/b/model.py", "/x/site-packages/torch/nn/functional.py"]),
    st.integers(1, 6),
    st.sampled_from(["forward", "step", "softmax"]),
)
STACKS = st.lists(FRAMES, max_size=4).map(tuple)


@st.composite
def programs(draw: st.DrawFn) -> list[Op]:
    """Allocations, each freed at some later time or never."""
    pool = draw(st.lists(STACKS, min_size=1, max_size=5))
    ops: list[Op] = []
    live: list[int] = []
    for number in range(draw(st.integers(0, 12))):
        ops.append(Op(draw(st.integers(1, 5000)), draw(st.sampled_from(pool))))
        live.append(number)
        while live and draw(st.booleans()):
            ops.append(Op(0, (), live.pop(draw(st.integers(0, len(live) - 1)))))
    return ops
