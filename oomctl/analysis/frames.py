"""Whose frame is it: the user's, a library's, or C++; and how a stack is folded for people."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from oomctl.model.common import shown_name
from oomctl.model.report import StackLine
from oomctl.model.stacks import BACKWARD_OF, Frame

_LIBRARY_PATH: Final = re.compile(
    r"[/\\](?:site|dist)-packages[/\\]"
    r"|[/\\](?:lib|lib64|Lib)[/\\]python[0-9.]*[/\\]"
    r"|[/\\]Python[0-9]+[/\\]Lib[/\\]"
    r"|[/\\]torch[/\\](?:nn|optim|utils|autograd|cuda|distributed|_[a-z]+|amp|fx|jit|func|library|profiler|testing)[/\\]"
    r"|[/\\](?:torch[/\\](?:functional|_tensor|_ops|_jit_internal|random|serialization))\.py$"
    r"|[/\\]src[/\\](?:transformers|accelerate|peft|trl|diffusers|lightning|deepspeed|datasets)[/\\]"
    r"|[/\\]oomctl[/\\](?:cli|recorder)[/\\]|[/\\]oomctl[/\\]__main__\.py$"
    r"|torchinductor_|(?:^|[/\\])fx_generated_|[/\\]torch_compile_debug[/\\]|[/\\]triton[/\\]"
    r"|^torch[/\\]"
)
_LIBRARY_PSEUDO: Final = re.compile(
    r"^<(?:frozen|eval_with_key|__array_function__|attrs generated|decorator-gen|torch_package)"
)
_CPP_NAME: Final = re.compile(
    r"::|^_?Py[A-Z_]|^_start$|^__libc|^0x|\(anonymous|\boperator\(\)|^[a-z_]*_?(?:vectorcall|tp_call)$"
)
_CPP_FILE: Final = re.compile(r"\.(?:c|cc|cpp|cxx|cu|cuh|h|hpp|so(?:\.[0-9.]+)?)$")


@lru_cache(maxsize=65536)
def frame_kind(frame: Frame, user_roots: tuple[str, ...] = ()) -> str:
    """ "user", "library" or "cpp".

    Args:
        frame: A frame as recorded.
        user_roots: Path prefixes that are the user's even inside a library's place; with any given, nothing
            outside them is the user's.
    """
    filename, line, name = frame
    if user_roots and filename.startswith(user_roots):
        return "user"
    if filename in ("??", "") or _CPP_FILE.search(filename) or (line == 0 and _CPP_NAME.search(name)):
        return "cpp"
    if filename.startswith(("<ipython-input", "<stdin>", "<string>")):
        return "library" if user_roots else "user"
    if _LIBRARY_PSEUDO.match(filename) or _LIBRARY_PATH.search(filename):
        return "library"
    return "library" if user_roots else "user"


def user_frames(frames: Sequence[Frame], user_roots: tuple[str, ...] = ()) -> list[Frame]:
    """The user's frames, innermost first; where there are none, the outermost library's, then anything."""
    kinds = [frame_kind(f, user_roots) for f in frames]
    for wanted in ("user", "library"):
        found = [f for f, kind in zip(frames, kinds, strict=True) if kind == wanted]
        if found and wanted == "library":
            outside_torch = [f for f in found if not _is_torch(f)]
            return outside_torch or found
        if found:
            return found
    return list(frames)


def _is_torch(frame: Frame) -> bool:
    return (
        "/torch/" in frame.filename or "torchinductor_" in frame.filename or frame.filename.startswith(("torch/", "<"))
    )


def fold(frames: Sequence[Frame], user_roots: tuple[str, ...] = (), most: int = 24) -> tuple[StackLine, ...]:
    """A stack for people: user frames one by one, runs of library and C++ frames as one line each.

    Args:
        frames: Innermost first.
        user_roots: As in `frame_kind`.
        most: Lines at most; the rest is one folded line.
    """
    lines: list[StackLine] = []
    run: list[Frame] = []

    def close() -> None:
        if not run:
            return
        shown = next((f for f in run if frame_kind(f, user_roots) == "library"), None)
        if len(run) == 1 and shown is not None:
            lines.append(StackLine(shown.filename, shown.line, shown.name, "library"))
        else:
            what = f"{len(run)} library frames" if shown is not None else f"{len(run)} C++ frames"
            lines.append(StackLine(shown.filename if shown else "", 0, what, "folded"))
        run.clear()

    for frame in frames:
        if frame == BACKWARD_OF:
            close()
            lines.append(StackLine("", 0, frame.name, "folded"))
        elif frame_kind(frame, user_roots) == "user":
            close()
            lines.append(StackLine(frame.filename, frame.line, frame.name, "user"))
        else:
            run.append(frame)
    close()
    if len(lines) > most:
        lines[most:] = [StackLine("", 0, f"{len(lines) - most} more frames", "folded")]
    return tuple(lines)


def label(frame: Frame) -> str:
    """ "file.py:28 function" with the file's last part only; a C++ function alone where no file is known."""
    if frame.filename in ("", "??") and frame_kind(frame) == "cpp":
        return shown_name(frame.name)
    return f"{basename(frame.filename)}:{frame.line} {frame.name}"


def basename(path: str) -> str:
    """Last part of a POSIX or Windows path."""
    return re.split(r"[/\\]", path)[-1]
