"""Which environment variable a version of torch reads its allocator settings from."""

from __future__ import annotations

from typing import Final

from oomctl.model.alloc_conf.types import ConfIssue
from oomctl.model.common import Version, VersionRange

CUDA_NAME: Final = "PYTORCH_CUDA_ALLOC_CONF"
HIP_NAME: Final = "PYTORCH_HIP_ALLOC_CONF"
GENERIC_NAME: Final = "PYTORCH_ALLOC_CONF"
NPU_NAME: Final = "PYTORCH_NPU_ALLOC_CONF"
ENV_NAMES: Final = (CUDA_NAME, HIP_NAME, GENERIC_NAME, NPU_NAME)
"""Every name that some build of torch reads."""


def env_names(torch: Version, backend: str = "cuda") -> tuple[str, ...]:
    """Names that the caching allocator of this version honours; the first one that is set wins, even if empty.

    Source: CUDAAllocatorConfig.h (2.10+: CUDA, then HIP on ROCm builds, then the generic name; 2.9: the generic name
    is read by a second parser only, whose values the CUDA allocator does not use).

    Args:
        torch: (major, minor).
        backend: cuda, hip, xpu or npu.
    """
    if backend == "npu":
        return (NPU_NAME, GENERIC_NAME) if torch >= (2, 10) else (NPU_NAME,)
    if backend == "xpu":
        return (GENERIC_NAME,) if torch >= (2, 10) else ()
    if torch < (1, 10):
        return ()
    if backend == "hip":
        if torch < (2, 8):
            return (HIP_NAME,)
        return (CUDA_NAME, HIP_NAME, GENERIC_NAME) if torch >= (2, 10) else (CUDA_NAME, HIP_NAME)
    return (CUDA_NAME, GENERIC_NAME) if torch >= (2, 10) else (CUDA_NAME,)


def name_issue(name: str, torch: Version, backend: str = "cuda") -> ConfIssue | None:
    """A remark when this version does not read its settings from that variable; None when it does.

    Args:
        name: Environment variable.
        torch: (major, minor).
        backend: cuda, hip, xpu or npu.
    """
    names = env_names(torch, backend)
    if name in names:
        return None
    if not names:
        text = f"this torch reads no allocator settings from the environment, {name} included"
    elif name == GENERIC_NAME and torch == (2, 9):
        text = (
            f"the GPU allocator of torch 2.9 does not read {name}, although torch's own warning advises that name: "
            f"these settings have no effect; use {names[0]}, which all versions read"
        )
    elif name == GENERIC_NAME:
        text = f"{name} has no effect before torch 2.10; use {names[0]}"
    elif name == HIP_NAME:
        text = f"only ROCm builds of torch read {name}; use {names[0]}"
    elif name == NPU_NAME:
        text = f"only torch_npu reads {name}; use {names[0]}"
    else:
        text = f"this torch does not read {name}; use {names[0]}"
    return ConfIssue("error", "", text)


def export_line(name: str, text: str, platform: str = "linux") -> str:
    """The whole line to paste into a shell; quoted where the shell would read brackets or ``>`` as its own.

    Args:
        name: Environment variable.
        text: Settings string.
        platform: windows writes it for cmd.exe, everything else for a POSIX shell.
    """
    special = any(char in text for char in "[]><&|;\"' ")
    if platform == "windows":
        return f'set "{name}={text}"' if special else f"set {name}={text}"
    quoted = "'" + text.replace("'", "'\\''") + "'"
    return f"export {name}={quoted if special else text}"


def env_name(torch: VersionRange, backend: str = "cuda") -> str:
    """The name to advise: it works on every version of the range that reads settings at all.

    The old CUDA name stays the safe one from 2.10 on too: torch still reads it, and reads it first, so a line that uses
    the newer generic name has no effect where the old name is already set.

    Args:
        torch: Versions that are possible.
        backend: cuda, hip, xpu or npu.
    """
    del torch  # for each backend one name works on all its versions
    return {"npu": NPU_NAME, "xpu": GENERIC_NAME, "hip": HIP_NAME}.get(backend, CUDA_NAME)
