"""Callbacks for training libraries; a library is imported only if it is there, and only when its callback is made."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from oomctl.errors import OomctlError
from oomctl.recorder.recording import Recording, record


def lightning_callback(out: str = ".", **options: Any) -> Any:
    """A Lightning ``Callback`` that records while the trainer runs and counts its steps.

    Args:
        out: Folder for the bundles.
        options: As for `oomctl.record`.

    Raises:
        OomctlError: Neither lightning nor pytorch_lightning is installed.
    """
    base = _base(("lightning.pytorch.callbacks", "pytorch_lightning.callbacks"), "Callback", "lightning")
    recording = record(out, **options)

    class OomctlCallback(base):  # type: ignore[misc,valid-type]
        """Starts with the trainer, ends with it."""

        def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
            recording.start()

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
            recording.step(trainer.global_step)

        def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
            recording.failed(exception)

        def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
            recording.stop()

    return _with(OomctlCallback(), recording)


def trainer_callback(out: str = ".", **options: Any) -> Any:
    """A ``TrainerCallback`` of transformers that records while the trainer trains and counts its steps.

    Args:
        out: Folder for the bundles.
        options: As for `oomctl.record`.

    Raises:
        OomctlError: transformers is not installed.
    """
    base = _base(("transformers",), "TrainerCallback", "transformers")
    recording = record(out, **options)

    class OomctlCallback(base):  # type: ignore[misc,valid-type]
        """Starts with the training; goes on through later evaluations, to the end of the program."""

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            recording.start()

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            recording.step(state.global_step)

    return _with(OomctlCallback(), recording)


def _base(modules: tuple[str, ...], name: str, package: str) -> Any:
    for module in modules:
        try:
            if find_spec(module.partition(".")[0]) is None:
                continue
            return getattr(import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise OomctlError(
        f"{package} is not installed here", f"pip install {package}, or use oomctl.record() around the loop"
    )


def _with(callback: Any, recording: Recording) -> Any:
    callback.recording = recording
    return callback
