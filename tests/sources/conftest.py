"""The decoders under test: Python's own and, where it was built, the compiled one."""

from __future__ import annotations

import os

import pytest

from oomctl import _native


@pytest.fixture(scope="module", params=["pure", "compiled"])
def engine(request):
    before = os.environ.pop(_native.ENGINE_VARIABLE, None)
    if request.param == "pure":
        os.environ[_native.ENGINE_VARIABLE] = "pure"
    elif _native.kernel("decode") is None:
        pytest.skip("the compiled decoder is not built here")
    yield request.param
    os.environ.pop(_native.ENGINE_VARIABLE, None)
    if before is not None:
        os.environ[_native.ENGINE_VARIABLE] = before
