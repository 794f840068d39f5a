"""Why a pickle is no memory snapshot, in words."""

from __future__ import annotations

import io
import pickle
import pickletools
import re
from itertools import islice
from typing import Final, NoReturn

from oomctl.errors import OomctlError
from oomctl.sources.looks import hint_for
from oomctl.sources.pickle_scan import MEMORY_FACTOR, Walk

_HINT: Final = hint_for("checkpoint")
_LEGACY_TORCH: Final = b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""The number 0x1950a86a20f9469cfc6c, with which `torch.save` of torch < 1.6 begins."""
_NAMES_CODE: Final = b"ci\x93"
_LONG: Final = b"\x8a\x8b"
_EMPTY_SET: Final = 0x8F
_FOREIGN: Final = {
    _EMPTY_SET: "a set", 0x91: "a frozenset", 0x96: "a bytearray",
    **dict.fromkeys(b"BC\x8e", "bytes"), **dict.fromkeys(_LONG, "a number of more than 64 bits"), ord("t"): "a tuple",
}  # fmt: skip
"""What opcodes make that a snapshot has no use for."""
_PUTS: Final = ("MEMOIZE", "BINPUT", "LONG_BINPUT")
_CLOSING: Final = ("APPENDS", "SETITEMS", "ADDITEMS", "FROZENSET", "TUPLE", "LIST", "DICT", "POP_MARK", "OBJ", "INST")
_MOST_OPCODES: Final = 100_000
"""Opcodes that are looked at; a pickle that is in step for so long is sound."""
_CHECKPOINT: Final = re.compile(
    r"(?:torch|numpy|collections\.OrderedDict|transformers|accelerate|argparse\.Namespace|omegaconf|__main__)\b"
)


class _Naming(pickle.Unpickler):
    """Decodes up to the first global and remembers its name; it never looks the name up."""

    name = ""

    def find_class(self, module: str, name: str) -> NoReturn:
        self.name = f"{module}.{name}"
        raise pickle.UnpicklingError("refused")


def refuse(data: bytes, found: Walk) -> None:
    """Says why a pickle whose walk came to something forbidden is not read; returns if it may only be damaged.

    Raises:
        OomctlError: It is of another kind, or made to do harm.
    """
    if data[2:].startswith(_LEGACY_TORCH):
        raise OomctlError("this looks like a checkpoint (torch.save of torch < 1.6), not a memory snapshot", _HINT)
    if found.reason == "memory":
        raise OomctlError(
            f"refused: it would build more than {MEMORY_FACTOR} bytes of objects for each byte of file, as a file "
            "made to exhaust memory does",
            _HINT,
        )
    if found.reason == "opcode" and data[found.end] in _NAMES_CODE:
        name = _global_name(data, found)
        if name:
            _refuse_global(name)
    if b"segments" not in data[:4096] and b"total_size" not in data[:4096]:
        if found.reason == "memo":
            raise OomctlError(
                "refused: its memo has an index far beyond its contents, as a file made to exhaust memory has", _HINT
            )
        raise OomctlError("a pickle, but not of a memory snapshot", _HINT)
    foreign = _foreign(data, found.end)
    if foreign:
        raise OomctlError(f"a pickle that holds {foreign}, which no memory snapshot does", _HINT)


def _foreign(data: bytes, at: int) -> str:
    """What an object of a kind that no snapshot holds is, or "" where the bytes at this place may only be damaged.

    A pickler puts each of these objects but numbers into the memo, closes a set with its items, and goes on to a
    STOP; bytes that were flipped do so hardly ever.
    """
    name = _FOREIGN.get(data[at], "")
    if not name:
        return ""
    file = io.BytesIO(data)
    file.seek(at)
    open_marks, closed = 0, data[at] != _EMPTY_SET
    try:
        for number, (opcode, _, _) in enumerate(islice(pickletools.genops(file), _MOST_OPCODES)):
            if number == 1 and opcode.name not in _PUTS and data[at] not in _LONG:
                return ""
            if number == 2 and opcode.name != "MARK":
                closed = True  # an empty set
            if not closed:
                open_marks += (opcode.name == "MARK") - (opcode.name in _CLOSING)
                if number > 2 and not open_marks:
                    if opcode.name != "ADDITEMS":
                        return ""
                    closed = True
            if opcode.name == "STOP":
                return name if closed and file.tell() == len(data) else ""
    except Exception:  # pickletools raises nearly any kind on damaged data
        return ""
    return name


def _global_name(data: bytes, found: Walk) -> str:
    """The name that the opcode at the walk's end asks for, or "" if it is garbage."""
    at = last = found.end
    if data[at] != 0x93:
        last = data.find(b"\n", data.find(b"\n", at, at + 300) + 1, at + 600)
        if last < at:
            return ""
    # A FRAME promises more bytes than this part has, so the frames go.
    edges = [0, *(edge for frame in found.frames or () for edge in (frame, frame + 9)), last + 1]
    part = b"".join(data[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True))
    decoder = _Naming(io.BytesIO(part))
    try:
        decoder.load()
    except Exception:  # the decoder raises nearly any kind on damaged data
        return decoder.name if re.fullmatch(r"[\w.<>]{3,200}", decoder.name) else ""
    return ""


def _refuse_global(name: str) -> NoReturn:
    if _CHECKPOINT.match(name):
        raise OomctlError(f"this looks like a checkpoint ({name}), not a memory snapshot", _HINT)
    raise OomctlError(
        f"refused: opening this pickle would call {name}; a memory snapshot holds data only",
        "do not open it with pickle.load or torch.load unless you trust who made it",
    )
