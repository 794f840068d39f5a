"""Which engine is used, and who is told."""

from __future__ import annotations

import pickle
import warnings

import pytest

from oomctl import _native
from oomctl.cli.main import main
from oomctl.errors import OomctlWarning
from oomctl.sources import snapshot_pickle
from tests.sources import convert


@pytest.mark.parametrize("value", ["pure", " PURE "])
def test_the_variable_forces_python(monkeypatch, value):
    monkeypatch.setenv(_native.ENGINE_VARIABLE, value)
    assert _native.engine() == "pure"
    assert _native.kernel("decode") is None


def test_a_kernel_that_is_not_there_is_none(monkeypatch):
    monkeypatch.delenv(_native.ENGINE_VARIABLE, raising=False)
    assert _native.kernel("no_such_kernel") is None


@pytest.fixture
def big(monkeypatch, tmp_path):
    """A file that counts as a big one."""
    monkeypatch.setattr(snapshot_pickle, "_BIG", 1000)
    path = tmp_path / "big.pickle"
    path.write_bytes(pickle.dumps(convert.capture("first-step")))
    return path


def test_a_big_file_read_by_python_gets_a_note(monkeypatch, capsys, big):
    monkeypatch.setenv(_native.ENGINE_VARIABLE, "pure")
    assert main(["diagnose", "--json", str(big)]) == 0
    assert "note: " in (err := capsys.readouterr().err)
    assert "decoded by Python" in err
    assert err.count("\n") == 1


def test_the_library_warns_and_does_not_print(monkeypatch, capsys, big):
    monkeypatch.setenv(_native.ENGINE_VARIABLE, "pure")
    with pytest.warns(OomctlWarning, match="decoded by Python"):
        snapshot_pickle.read_pickle(big.read_bytes())
    assert capsys.readouterr() == ("", "")


@pytest.mark.skipif(_native.kernel("decode") is None, reason="no compiled kernels here")
def test_the_compiled_engine_says_nothing(big, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error", OomctlWarning)
        assert main(["diagnose", "--json", str(big)]) == 0
    assert capsys.readouterr().err == ""
