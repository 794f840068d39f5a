"""Kinds of tensors against what made-up programs allocated: bytes told right, told wrong, and left untold."""

from __future__ import annotations

import numpy as np
import pytest

from oomctl.analysis.categories import CATEGORIES, categories_of, category_rows
from tests.diagnosis.planted import NAMES
from tests.diagnosis.test_planted import drawn, examined

TRUTH = {
    "weights": "parameters",
    "activation": "activations",
    "temporary": "activations",
    "evaluation": "activations",
    "loss": "activations",
    "gradient": "gradients",
    "state": "optimizer_state",
    "rotated": "optimizer_state",
    "input": "inputs",
}


@pytest.mark.parametrize("rotating", [False, True])
def test_categories_of_planted_programs(rotating, capsys):
    right = wrong = untold = 0
    for seed in range(30):
        found = examined(drawn(seed, steps=8, rotating=rotating))
        heap = found.heap
        names = [NAMES[i] for i in found.lives.stack[heap.live]]
        told = [CATEGORIES[c] for c in categories_of(found)]
        for name, category, size in zip(names, told, heap.live_size.tolist(), strict=True):
            if name not in TRUTH or category == "unknown":
                untold += size
            elif category == TRUTH[name]:
                right += size
            else:
                wrong += size
        assert sum(row.bytes for row in category_rows(found)) == int(np.sum(heap.live_size))
    total = right + wrong + untold
    with capsys.disabled():
        print(
            f"\n  kinds of tensors: right {right / total:.1%}, wrong {wrong / total:.1%}, not told {untold / total:.1%}"
        )
    assert right >= 0.8 * total
    assert wrong <= 0.05 * total
