"""The parts that need no process of their own."""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oomctl
from oomctl.errors import OomctlError
from oomctl.recorder import bundle
from oomctl.recorder.backend import Sample
from oomctl.recorder.errors_seen import memory_error
from oomctl.recorder.imports import when_imported
from oomctl.recorder.nvml import Card, card
from oomctl.recorder.settings import watermark_bytes
from oomctl.recorder.watch import LEAST_RISE, Growth, Watch
from oomctl.units import GIB, MIB

LIMIT = 16 * GIB


def growth(values: list[int], limit: int | None = LIMIT) -> tuple[int, int, int, int] | None:
    seen = Growth()
    for step, value in enumerate(values):
        seen.add(step, value)
    return seen.rise(limit)


@given(
    st.integers(40, 2000),
    st.integers(16 * MIB, 200 * MIB),
    st.lists(st.integers(0, 4 * MIB), min_size=8, max_size=8),
    st.integers(1, 4),
)
def test_what_grows_is_found(steps: int, rate: int, noise: list[int], every: int) -> None:
    values = [2 * GIB + (step // every) * rate + noise[step % 8] for step in range(steps * every)]
    found = growth(values)
    assert found is not None
    first, last, low, high = found
    assert 0.5 * rate / every <= (high - low) / (last - first) <= 1.5 * rate / every


@given(st.integers(0, 10**6), st.integers(0, 40), st.integers(16, 3000), st.integers(0, 8 * GIB))
def test_what_stays_is_no_growth(seed: int, warm_up: int, steps: int, swing: int) -> None:
    """Noise of any size around a level, after a warm-up that rises: no alarm."""
    import random

    dice = random.Random(seed)
    floor = 2 * GIB
    values = [
        floor * min(step, warm_up) // max(1, warm_up)
        if step < min(warm_up, steps // 5)
        else floor + dice.randint(0, swing)
        for step in range(steps)
    ]
    found = growth(values)
    # Chance may order the lowest points of four parts, but then the rise is small against the swing.
    assert found is None or found[3] - found[2] < swing


@given(st.integers(64, 5000), st.integers(0, 60))
def test_a_plateau_is_no_growth(steps: int, last_rise: int) -> None:
    """A cache that fills during the first part and is full then."""
    end = steps * last_rise // 100
    assert growth([GIB + min(step, end) * 10 * MIB for step in range(steps)]) is None or last_rise > 40


def test_growth_is_bounded_and_needs_enough() -> None:
    seen = Growth()
    for step in range(100_000):
        seen.add(step, GIB)
        assert len(seen.points) < 64
    assert growth([i * GIB for i in range(15)]) is None
    assert growth([i * (LEAST_RISE // 40) for i in range(32)]) is None


def test_alarms_are_said_once() -> None:
    watch = Watch(lines_every=0, alarm=True)
    said = [
        line
        for step in range(400)
        for line in watch.see(step, Sample(GIB + step * 10 * MIB, 8 * GIB, 15 * GIB, step // 200), LIMIT)
    ]
    grows = [line for line in said if "rises from step to step" in line]
    assert grows[0].endswith("a step; at this rate 16.00 GiB are full in about 1511 steps")
    assert 1 < len(grows) < 8  # again each time that it has doubled
    assert sum("given back" in line for line in said) == 1
    assert sum("fragmentation" in line for line in said) == 1
    assert Watch(0, alarm=False).see(1, Sample(GIB, GIB, LIMIT, 9), LIMIT) == []


@pytest.mark.parametrize(
    ("text", "limit", "size"),
    [("", LIMIT, None), ("90%", 1000, 900), ("90%", None, None), ("20GiB", None, 20 * GIB), ("100%", 7, 7)],
)
def test_watermarks(text: str, limit: int | None, size: int | None) -> None:
    assert watermark_bytes(text, limit) == size


class OutOfMemoryError(RuntimeError):
    """Named as torch's."""


class AcceleratorError(RuntimeError):
    """Named as torch's."""


def chained(error: Exception, cause: Exception | None) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "is_memory"),
    [
        (OutOfMemoryError("CUDA out of memory."), True),
        (OutOfMemoryError("anything"), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (AcceleratorError("CUDA error: out of memory"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (chained(ValueError("the trainer failed"), OutOfMemoryError("x")), True),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory, says a file"), False),
        (AcceleratorError("CUDA error: device-side assert triggered"), False),
        (KeyError("x"), False),
    ],
    ids=repr,
)
def test_which_exceptions_mean_memory(error: Exception, is_memory: bool) -> None:
    assert (memory_error(error) is not None) == is_memory


def test_a_circle_of_exceptions_ends() -> None:
    first, second = ValueError("1"), ValueError("2")
    first.__cause__, second.__cause__ = second, first
    assert memory_error(first) is None


@pytest.fixture
def _clean_modules() -> Iterator[None]:
    before = set(sys.modules)
    finders = list(sys.meta_path)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    sys.meta_path[:] = finders


@pytest.mark.usefixtures("_clean_modules")
def test_waiting_for_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waited_for.py").write_text("VALUE = 1\n")
    seen: list[object] = []
    when_imported("waited_for", lambda module: seen.append(module.VALUE))
    with pytest.raises(ModuleNotFoundError):
        __import__("waited_for")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__("waited_for")
    assert seen == [1]
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"
    when_imported("waited_for", lambda module: seen.append(2))
    assert seen == [1, 2]


@pytest.mark.usefixtures("_clean_modules")
def test_waiting_while_others_look_for_it_and_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries ask whether torch is installed, perhaps import it in vain, and only then import it."""
    path = tmp_path / "looked_for.py"
    path.write_text("raise ImportError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[object] = []
    for number in (1, 2):
        when_imported("looked_for", lambda module, number=number: seen.append((number, module.VALUE)))
    assert importlib.util.find_spec("looked_for") is not None
    with pytest.raises(ImportError):
        __import__("looked_for")
    assert seen == []
    path.write_text("VALUE = 'here at last'\n")
    importlib.invalidate_caches()
    assert importlib.util.find_spec("looked_for") is not None
    module = __import__("looked_for")
    assert sorted(seen) == [(1, module.VALUE), (2, module.VALUE)]
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"


@pytest.mark.usefixtures("_clean_modules")
def test_waiting_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "not_waited_for.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[object] = []
    stop = when_imported("not_waited_for", seen.append)
    stop()
    stop()
    __import__("not_waited_for")
    assert seen == []


def test_nvml_without_a_card_is_empty() -> None:
    assert isinstance(card(None), Card)
    assert card(10_000, "no-such-card").processes == ()


def test_bundle_names_are_unique_and_whole(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"schema": "oomctl.incident/1"}
    name = bundle.name_of("oom", 3, 0.0)
    assert name == "oom-19700101T000000Z-rank3"
    paths = [bundle.write_bundle(str(tmp_path), name, dict(facts), {})[0] for _ in range(3)]
    assert [Path(p).name for p in paths] == [name, f"{name}-2", f"{name}-3"]

    def half(stream: Any) -> None:
        stream.write(b"half")
        raise OSError(28, "No space left on device")

    path, troubles = bundle.write_bundle(
        str(tmp_path), "state-x", dict(facts), {"a": half, "b": lambda s: s.write(b"b")}
    )
    assert sorted(p.name for p in Path(path).iterdir()) == ["b", "incident.json"]
    assert troubles == ["a: no space left on device"]
    bundle.add_message(path, "Traceback\n\ud800")
    assert json.loads((Path(path) / "incident.json").read_text())["message"] == "message.txt"


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from(
    [
        "cause",
        "message",
        "request",
        "device",
        "mem_get_info",
        "card",
        "processes",
        "environment",
        "torch",
        "rank",
        "notes",
        "allocated",
        "reserved",
        "time_us",
        "backend",
    ]
)
dicts = st.dictionaries(
    st.sampled_from(
        ["segment_size", "allowed_or_total", "device_free", "index", "name", "total", "free", "used", "pid"]
    ),
    values,
    max_size=5,
)


@settings(deadline=None)
@given(st.dictionaries(keys, values | dicts | st.lists(dicts, max_size=2), max_size=10), st.booleans())
def test_a_hostile_incident_is_read_or_refused(data: dict[str, Any], is_oom: bool) -> None:
    import tempfile

    if is_oom:
        data["cause"] = "oom"
    with tempfile.TemporaryDirectory() as folder:
        text = json.dumps({"schema": "oomctl.incident/1", **data})
        (Path(folder) / "incident.json").write_text(text)
        try:
            evidence = oomctl.load(folder)
        except OomctlError:
            return
    for event in evidence.oom_events:
        sizes = (event.tried_to_allocate, event.total_capacity, event.free, event.allocated, event.allowed)
        assert all(size is None or 0 <= size < 2**62 for size in sizes)


def library(monkeypatch: pytest.MonkeyPatch, name: str, **names: object) -> None:
    """A library with a spec, as an installed one has."""
    import importlib.machinery

    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__path__ = []
    module.__dict__.update(names)
    monkeypatch.setitem(sys.modules, name, module)


class Base:
    """A callback's base class."""


def test_callbacks_need_their_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "pytorch_lightning", "transformers"):
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    for make, what in ((oomctl.lightning_callback, "lightning"), (oomctl.trainer_callback, "transformers")):
        with pytest.raises(OomctlError, match=f"{what} is not installed"):
            make()


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for other in ("lightning", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, other, None)  # type: ignore[arg-type]
    for part in (name.partition(".")[0], name):
        library(monkeypatch, part)
    library(monkeypatch, f"{name}.callbacks", Callback=Base)
    made = oomctl.lightning_callback(str(tmp_path), lines_every=5)
    assert isinstance(made, Base)
    trainer = types.SimpleNamespace(global_step=41)
    made.setup(trainer, None, "fit")
    made.on_train_batch_end(trainer, None, {}, None, 0)
    assert (made.recording.active, made.recording.number) == (True, 41)
    made.on_exception(trainer, None, ValueError("x"))
    made.teardown(trainer, None, "fit")
    assert not made.recording.active


def test_transformers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    library(monkeypatch, "transformers", TrainerCallback=Base)
    made = oomctl.trainer_callback(str(tmp_path))
    state = types.SimpleNamespace(global_step=7)
    made.on_train_begin(None, state, None, model=None)
    made.on_step_end(None, state, None)
    assert (made.recording.active, made.recording.number) == (True, 7)
    made.recording.stop()


def test_steps_without_a_recording_are_nothing() -> None:
    oomctl.step()
    oomctl.step(5)


@pytest.mark.parametrize(
    "options", [{"stacks": "some"}, {"max_entries": 0}, {"signal": "SIGNOTHING"}, {"context": "x"}]
)
def test_wrong_options(options: dict[str, Any]) -> None:
    with pytest.raises(OomctlError):
        oomctl.record(**options)
