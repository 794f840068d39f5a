"""Events by address: compiled, and as numpy sorts them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oomctl.model.coding import coded, grouped, paired

order = pytest.importorskip("oomctl._native.order")

EVENTS = st.lists(st.tuples(st.integers(0, 11), st.integers(0, 9) | st.integers(0, 2**64 - 1)), max_size=300)


@given(EVENTS, st.integers(0, 2**64 - 1))
def test_rows_by_address(events, seed):
    action = np.array([kind for kind, _ in events], np.uint8)
    address = np.array([place for _, place in events], np.uint64)
    rows = np.flatnonzero(action <= 2)
    wanted = rows[np.argsort(address[rows], kind="stable")]
    assert order.by_address(action, address, seed).tolist() == wanted.tolist()


@given(EVENTS, st.sampled_from([-1, 1, 2]))
def test_events_paired_into_lives(events, end):
    action = np.array([kind for kind, _ in events], np.uint8)
    address = np.array([place for _, place in events], np.uint64)
    rows = order.by_address(action, address, 1)
    (made, follows), (wanted, after) = (f(action, address, rows, end) for f in (order.pairs, paired))
    assert (made.dtype, follows.dtype) == (wanted.dtype, after.dtype)
    assert made.tolist() == wanted.tolist()
    assert follows.tolist() == after.tolist()


def test_many_addresses():
    address = np.random.default_rng(1).integers(0, 1 << 20, 200_000, np.uint64) << np.uint64(9)
    found = order.by_address(np.zeros(len(address), np.uint8), address, 7)
    assert found.tolist() == np.argsort(address, kind="stable").tolist()


@pytest.mark.parametrize("kind", [np.uint64, np.int64, np.int32])
@given(st.data())
def test_coded_is_unique_with_its_inverse(kind, data):
    info = np.iinfo(kind)
    some = data.draw(st.lists(st.integers(int(info.min), int(info.max)), min_size=1, max_size=30))
    near = st.integers(0, 50)
    values = np.array(data.draw(st.lists(st.sampled_from(some) | near, max_size=100)), kind)
    distinct, codes = coded(values)
    wanted, inverse = np.unique(values, return_inverse=True)
    assert distinct.dtype == values.dtype
    assert distinct.tolist() == wanted.tolist()
    assert codes.tolist() == inverse.reshape(-1).tolist()
    assert grouped(codes, len(distinct)).tolist() == np.argsort(codes, kind="stable").tolist()
