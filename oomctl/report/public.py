"""What stays readable when every name is hashed: names of public software, of which none is the user's own."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from oomctl.model.alloc_conf import ENV_NAMES, OPTIONS

PACKAGES: Final = frozenset(
    {
        "accelerate",
        "apex",
        "bitsandbytes",
        "datasets",
        "deepspeed",
        "diffusers",
        "fairscale",
        "flash_attn",
        "lightning",
        "lightning_fabric",
        "megatron",
        "numpy",
        "peft",
        "pytorch_lightning",
        "scipy",
        "sentence_transformers",
        "timm",
        "torch",
        "torch_geometric",
        "torchaudio",
        "torchgen",
        "torchvision",
        "transformers",
        "triton",
        "trl",
        "vllm",
        "xformers",
    }
)
"""Packages whose frames stay; every other one may be a private one that pip installed."""

FUNCTIONS: Final = frozenset({"<module>", "main", "forward", "backward", "step", "__init__", "__call__", ""})
"""Names that any program has and that say nothing about it."""

_OPTIMIZERS: Final = (
    "Adadelta|Adafactor|Adagrad|Adam|AdamW|Adamax|ASGD|LBFGS|Muon|NAdam|RAdam|RMSprop|Rprop|SGD|SparseAdam"
    "|ZeroRedundancyOptimizer|_?Optimizer"
)
_MARK: Final = re.compile(
    rf"(?:ProfilerStep|Optimizer\.(step|zero_grad)#(?:{_OPTIMIZERS})\.\1|step \d+)?[#\s_]*\d*(?: \(warm-up\))?"
)
_INSTALLED: Final = re.compile(r"^.*?[/\\]?((?:site|dist)-packages[/\\]+)(.*)$", re.DOTALL)
_STANDARD: Final = re.compile(
    r"^(?:.*[/\\])?(?:lib|lib64|Lib)[/\\](python\d[\d.]*t?[/\\])?(?:lib-dynload[/\\])?((\w+)(?:[/\\.].*)?)$", re.DOTALL
)
_FROZEN: Final = re.compile(r"<frozen (\w+)[\w.]*>|<(?:string|stdin|eval_with_key|__array_function__ internals)>[.\d]*")
_CPP_ROOTS: Final = frozenset({"at", "c10", "c10d", "caffe2", "pybind11", "std", "torch"})
_CPP_WORDS: Final = frozenset(
    {
        "anonymous",
        "auto",
        "bool",
        "char",
        "clone",
        "cold",
        "const",
        "double",
        "enable_if",
        "false",
        "float",
        "int",
        "lambda",
        "long",
        "namespace",
        "operator",
        "short",
        "signed",
        "this",
        "true",
        "unsigned",
        "void",
        "wchar_t",
    }
)
_PYTHON_C: Final = re.compile(r"_?Py[A-Z_]\w*|_start|__libc_start\w*|_PyEval\w*")
_NUMBER: Final = re.compile(r"[-+<>=]*[\d.]+(?:[eE][-+]?\d+)?(?:-[\d.]+)?(?:[kKmMgGtT]i?[bB]?|[bB]|%)?")
_WORD: Final = re.compile(r"[^\s,;:=\[\](){}<>'\"]+")
_VALUES: Final = frozenset(
    {
        "True",
        "False",
        "true",
        "false",
        "None",
        "native",
        "cudaMallocAsync",
        "max_split_size",
        "roundup_bypass_threshold",
        "max_non_split_rounding",
        "large_segment_size",
        "last_allocator_settings",
        "torch",
        "posix_fd",
        "fabric",
        "fd",
        "unspecified",
        "export",
        "set",
        "env",
        "$env",
    }
)
_SETTINGS: Final = _VALUES | frozenset(ENV_NAMES) | {option.key for option in OPTIONS}


@lru_cache(maxsize=65536)
def public_path(path: str) -> str | None:
    """The part of a path that public software shares with every machine; None for a file of the user's.

    Args:
        path: As recorded.
    """
    if path in ("", "??"):
        return path
    frozen = _FROZEN.fullmatch(path)
    if frozen:
        return path if frozen[1] is None or frozen[1] in sys.stdlib_module_names else None
    if ".." in path:
        return None
    installed = _INSTALLED.match(path)
    if installed:
        package = re.split(r"[/\\.]", installed[2])[0]
        return f"…/{installed[1]}{installed[2]}" if package in PACKAGES else None
    standard = _STANDARD.match(path)
    if standard and (standard[1] or "Python" in path) and standard[3] in sys.stdlib_module_names:
        return f"…/{standard[1] or 'Lib/'}{standard[2]}"
    return path if re.match(r"torch[/\\]", path) else None


@lru_cache(maxsize=65536)
def public_function(path: str, function: str) -> bool:
    """Whether a function's name tells nothing about the user's program.

    Args:
        path: The file that it is in, as recorded.
        function: Its name.
    """
    if function in FUNCTIONS or (path not in ("", "??") and public_path(path) is not None):
        return True
    return _public_cpp(function)


def _public_cpp(name: str) -> bool:
    """A C++ name in which every identifier is torch's or the language's, or a function of Python's own."""
    if _PYTHON_C.fullmatch(name):
        return True
    roots = re.findall(r"(?<![\w:])[A-Za-z_]\w*(?=::)", name)
    alone = re.findall(r"(?<![\w:])[A-Za-z_]\w*(?![\w:])", name)
    return bool(roots) and {*roots} <= _CPP_ROOTS and {*alone} <= _CPP_WORDS


def public_mark(label: str) -> bool:
    """Whether a mark's name is torch's or oomctl's own: of the profiler, of an optimizer of torch's, a number.

    Args:
        label: As recorded.
    """
    return _MARK.fullmatch(label) is not None


def private_words(settings: str) -> list[str]:
    """Words of a settings string that torch does not know: keys, and values that are no value of any option.

    Args:
        settings: As recorded.
    """
    return [word for word in _WORD.findall(settings) if _private(word)]


def hide_words(settings: str, hashed: Callable[[str], str]) -> str:
    """A settings string with its private words replaced.

    Args:
        settings: As recorded.
        hashed: What stands for a word.
    """
    return _WORD.sub(lambda found: hashed(found[0]) if _private(found[0]) else found[0], settings)


def _private(word: str) -> bool:
    return word not in _SETTINGS and not _NUMBER.fullmatch(word)
