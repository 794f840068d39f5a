"""What the program was doing when it failed, from the traceback."""

from __future__ import annotations

import re
from typing import Final

from oomctl.analysis.frames import fold, frame_kind, label, user_frames
from oomctl.model.log import OomEvent
from oomctl.model.report import Culprit
from oomctl.model.stacks import Frame

_PHASES: Final = (
    ("saving", re.compile(r"^_?save|checkpoint_clone|save_checkpoint|consolidat|state_dict_to|export"), None),
    (
        "optimizer",
        re.compile(r"^_init_group$|_multi_tensor|_single_tensor|_foreach"),
        re.compile(r"[/\\]optim[/\\]|optimizer\.step\(|\bopt\.step\("),
    ),
    ("backward", re.compile(r"backward"), re.compile(r"\.backward\(|run_backward")),
    (
        "evaluation",
        re.compile(r"eval|valid|predict|infer|generat|^test|sample"),
        re.compile(r"no_grad|\.generate\(|inference"),
    ),
    (
        "load",
        re.compile(r"from_pretrained|^_?load|_apply$|convert$|to_empty|^__init__$|allocate_cache|init_cache"),
        re.compile(r"torch\.load\(|load_state_dict\(|from_pretrained\("),
    ),
    ("forward", re.compile(r"forward|_call_impl|^__call__$"), None),
)
"""(phase, function names, source lines or files), the most telling first."""
_CALL: Final = re.compile(r"(?:torch(?:\.\w+)*|F|nn\.functional|np)\.(\w+)\(|\.(\w+)\(|\b(\w+)\(")
_LARGE: Final = re.compile(
    r"cross_entropy|log_softmax|nll_loss|\bsoftmax|logits?\b.*(?:float32|\.float\(\))|_expand_mask|attention_mask|causal_mask|"
    r"baddbmm|\bq\s*@\s*k|scores\b|einsum|cdist|covariance|\bbmm|_scaled_dot",
    re.IGNORECASE,
)
"""Code that makes one tensor out of two long dimensions: tokens by vocabulary, tokens by tokens, pixels by pixels."""
_COPIES: Final = re.compile(
    r"torch\.cat\(|\.clone\(|\.flatten\(|deepcopy|\.contiguous\(|\.clamp\(|\[~?\w*mask\w*\]|interpolate|upsample"
)
_PASSES_ON: Final = re.compile(
    r"^__(?:torch_function|torch_dispatch|call)__$|^_(?:wrapped_)?call_impl$|^decorate_context$"
)
"""Functions of libraries that every call goes through: alone in a traceback they name no place."""


ONTO_ITS_GPU: Final = ("_cuda_deserialize", "default_restore_location")
"""Functions of torch.load that put a tensor onto the GPU that it was saved from."""


def phase(event: OomEvent) -> str:
    """load, forward, backward, optimizer, evaluation, saving, or unknown."""
    names = [frame.name for frame in event.traceback]
    text = " ".join((*(f.filename for f in event.traceback), *event.code))
    user = [f.name for f in event.traceback if frame_kind(f) == "user"]
    if "load_state_dict" in names:  # an optimizer's too, though its file is torch/optim
        return "load"
    for slug, name, code in _PHASES:
        where = user if slug in ("saving", "evaluation") else names
        if any(name.search(n) for n in where) or (code is not None and code.search(text) is not None):
            if slug == "load" and any(n in ("forward", "_call_impl") for n in names):
                continue
            return slug
    return "unknown"


def operation(event: OomEvent) -> str:
    """Name of the innermost call: the library function that asked, or the call on the failing line."""
    if not event.traceback:
        return ""
    inner = event.traceback[0]
    if frame_kind(inner) != "user":
        return inner.name
    code = event.code[0] if event.code else ""
    calls = [next(g for g in m.groups() if g) for m in _CALL.finditer(code)]
    return calls[0] if calls else ""


def makes_large(event: OomEvent) -> str | None:
    """The failing line when it is one that makes a product of two long dimensions; else None."""
    inner = list(zip(event.traceback, event.code or ("",) * len(event.traceback), strict=False))[:4]
    for frame, code in sorted(inner, key=lambda row: frame_kind(row[0]) != "user"):  # the user's line says more
        if _LARGE.search(code) or _LARGE.search(frame.name):
            return code or frame.name
    return None


def makes_copy(event: OomEvent) -> str | None:
    """The failing line when it copies what is there already (cat, clone, a boolean mask); else None."""
    for code in event.code[:2]:
        if _COPIES.search(code):
            return code
    return None


def user_site(event: OomEvent) -> Frame | None:
    """The user's innermost frame; None without a traceback, or where it shows only functions that pass calls on."""
    frames = [f for f in user_frames(event.traceback) if frame_kind(f) == "user" or not _PASSES_ON.search(f.name)]
    return frames[0] if frames else None


def site_label(event: OomEvent) -> str | None:
    """ "file.py:28 function" of that frame."""
    frame = user_site(event)
    return label(frame) if frame is not None else None


def culprits(event: OomEvent) -> tuple[Culprit, ...]:
    """Who asked: the innermost user frame, with the stack folded around it."""
    frame = user_site(event)
    if frame is None:
        return ()
    index = event.traceback.index(frame)
    source = event.code[index] if index < len(event.code) and event.code[index] else None
    size = event.tried_to_allocate or 0
    return (
        Culprit(
            rank=1,
            file=frame.filename,
            line=frame.line,
            function=frame.name,
            bytes=size,
            blocks=1,
            share=1.0,
            role="requested",
            stack=fold(event.traceback),
            source=source,
        ),
    )
