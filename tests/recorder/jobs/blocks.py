"""oomctl.record as a decorator, nested, with steps; the failure is caught."""

import torch

import oomctl


@oomctl.record("bundles", lines_every=3)
def train(depth):
    if depth:
        with oomctl.record("elsewhere") as inner:
            assert inner.outer is not None
            return train(depth - 1)
    kept = []
    while True:
        kept.append(torch.empty(100_000))
        oomctl.step()


for _ in range(2):
    try:
        train(1)
    except torch.OutOfMemoryError:
        print("caught")
    torch.device.blocks.clear()
oomctl.step()
print("history", torch.device.history, "observers", len(torch.device.observers))
print(torch.profiler.record_function.names[:4])
