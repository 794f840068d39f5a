"""Made-up training programs with a fault of known size planted in them, run on the simulated GPU.

A program has layers, an optimizer whose state may rotate, gradients that are dropped each step, temporaries, and noise:
batches of varying size, occasional evaluation, caches that fill up and stop. Everything is drawn from the seed.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np

from oomctl.allocator.policy import UNLIMITED
from oomctl.model.snapshot import Snapshot
from oomctl.model.stacks import Frame, StackTable
from tests.allocator.machine import Machine

MIB = 1 << 20
TORCH = "/usr/lib/python3/site-packages/torch"
MODULE = Frame(f"{TORCH}/nn/modules/module.py", 1790, "_call_impl")
TRAIN, LOOP = Frame("/home/u/train.py", 40, "train_step"), Frame("/home/u/train.py", 90, "main")

PATHS: dict[str, tuple[Frame, ...]] = {
    "program": (LOOP,),
    "input": (Frame("/home/u/data.py", 12, "next_batch"), TRAIN, LOOP),
    "freeing": (LOOP,),
    "weights": (
        Frame(f"{TORCH}/nn/modules/linear.py", 106, "__init__"),
        Frame("/home/u/model.py", 8, "__init__"),
        LOOP,
    ),
    "activation": (Frame("/home/u/model.py", 21, "forward"), MODULE, TRAIN, LOOP),
    "temporary": (Frame("/home/u/model.py", 23, "forward"), MODULE, TRAIN, LOOP),
    "loss": (Frame("/home/u/loss.py", 5, "token_loss"), TRAIN, LOOP),
    "gradient": (Frame(f"{TORCH}/autograd/graph.py", 829, "_engine_run_backward"), TRAIN, LOOP),
    "state": (Frame(f"{TORCH}/optim/adamw.py", 140, "_init_group"), TRAIN, LOOP),
    "rotated": (Frame(f"{TORCH}/optim/adamw.py", 400, "_multi_tensor_adamw"), TRAIN, LOOP),
    "evaluation": (Frame("/home/u/model.py", 21, "forward"), MODULE, Frame("/home/u/evaluate.py", 9, "evaluate"), LOOP),
    "cache": (Frame("/home/u/cache.py", 14, "remember_shape"), TRAIN, LOOP),
    "leak": (Frame("/home/u/metrics.py", 31, "update"), TRAIN, LOOP),
    "pinning": (Frame("/home/u/log.py", 7, "keep"), TRAIN, LOOP),
}
NAMES = tuple(PATHS)


def stack_table() -> StackTable:
    """One stack a name of `PATHS`."""
    frames = tuple(dict.fromkeys(f for path in PATHS.values() for f in path))
    offsets = np.cumsum([0, *(len(p) for p in PATHS.values())])
    ids = np.array([frames.index(f) for path in PATHS.values() for f in path], np.int32)
    return StackTable(frames, offsets.astype(np.int64), ids)


@dataclass
class Program:
    """One training program.

    Attributes:
        seed: Of everything that is drawn.
        steps: Steps to run, unless it fails before.
        leak: Bytes kept in each leaking step.
        leak_every: Steps between two leaks.
        leak_blocks: Blocks that a leak is made of.
        peak: Bytes of an extra request in the last step.
        noise: 0 to 1, how much batches vary.
        rotating: The optimizer makes its state anew each step.
        limit: Bytes.
        stacks: Whether events carry stacks.
    """

    seed: int
    steps: int = 12
    leak: int = 0
    leak_every: int = 1
    leak_blocks: int = 1
    peak: int = 0
    noise: float = 0.2
    rotating: bool = False
    limit: int = UNLIMITED
    stacks: bool = True
    held: list[int] = field(default_factory=list)

    def run(self) -> Snapshot:
        """The snapshot that was dumped at the end, or at the failure."""
        self.random = random.Random(self.seed)
        self.machine = Machine(limit=self.limit, stacks=self.stacks)
        self.failed = False
        layers = self.random.randint(4, 10)
        width = self.random.choice((2, 4, 8)) * MIB
        weights = [self._take("weights", width) for _ in range(layers)]
        state: list[int] = []
        caches = self.random.randint(0, min(6, self.steps // 2))  # they fill up, then stop
        evaluates = self.random.choice((0, 0, 3, 5))
        for step in range(self.steps):
            state = self._step(step, layers, width, state)
            if self.failed:
                break
            if step < caches:
                self._take("cache", width // 4)
            if self.leak and step % self.leak_every == 0:
                for _ in range(self.leak_blocks):
                    self.held.append(self._take("leak", max(self.leak // self.leak_blocks, 512)))
            if evaluates and step % evaluates == evaluates - 1:
                self._forward("evaluation", layers, width, keep=False)
        assert weights
        return replace(self.machine.snapshot(), stacks=stack_table())

    def _take(self, name: str, size: int) -> int:
        if self.failed:
            return 0
        self.machine.stack = NAMES.index(name)
        key = self.machine.alloc(max(size, 1))
        if key is None:
            self.failed = True
            return 0
        return key

    def _drop(self, keys: list[int]) -> None:
        for key in keys:
            if key in self.machine.live:
                self.machine.free(key)

    def _forward(self, name: str, layers: int, width: int, keep: bool) -> list[int]:
        kept = []
        size = max(int(width * (1 + self.noise * (self.random.random() - 0.5) * 2)), 512)
        for _ in range(layers):
            kept.append(self._take(name, size))
            self._drop([self._take("temporary", size // 2)])
        if not keep:
            self._drop(kept)
            return []
        return kept

    def _step(self, step: int, layers: int, width: int, state: list[int]) -> list[int]:
        batch = self._take("input", 300_000)
        kept = self._forward("activation", layers, width, keep=True)
        loss = self._take("loss", width // 2)
        if self.peak and step == self.steps - 1:
            self._take("loss", self.peak)
        gradients = []
        for key in reversed(kept):
            gradients.append(self._take("gradient", width))
            self._drop([key])
        self._drop([loss, batch])
        if not state:
            state = [self._take("state", width) for _ in range(2 * layers)]
        elif self.rotating:
            fresh = [self._take("rotated", width) for _ in range(2 * layers)]
            self._drop(state)
            state = fresh
        self._drop(gradients)
        return state
