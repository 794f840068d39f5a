"""Facts about the run around a failure: how far it had come, which settings and which torch it states."""

from __future__ import annotations

import re
from typing import Final

from oomctl.model.log import Sign
from oomctl.sources.text import versions
from oomctl.sources.text.base import Findings, Passage

_CONF: Final = re.compile(
    r"(?<!setting )(?<!set )PYTORCH_(?:CUDA_|HIP_|NPU_)?ALLOC_CONF['\"]?\]?\s*[=:]\s*['\"]?"
    r"(?P<conf>[a-z_0-9]+:[\w.\[\]:,>-]*[\w\]])(?!\.\.)"
)
_PROGRESS: Final = re.compile(
    r"(?:\b(?:global_?)?(?:step|iter(?:ation)?|batch|update|num_updates)s?\b['\"/a-z_]*\s*[:=#\[]?\s*['\"]?"
    r"(?P<step>\d{1,9})(?![\d.]*[eE%])"
    r"|\bEpoch:?\s*\[?\d+\]?\s*\[(?P<of>\d+)/\d+\]"
    r"|[|\u2588-\u258f ]\s*(?P<bar>\d{1,9})(?:\.\d+)?/\d{1,9}(?:\.\d+)?\s*\[\d\d:\d\d"
    r"|^\s*\d+ (?P<plain>\d+) loss\b)",
    re.IGNORECASE,
)
_LOADING: Final = re.compile(
    r"Loading (?:checkpoint|safetensors|pt checkpoint|model weights)|load_state_dict|from_pretrained", re.I
)


class Signs:
    """Reads progress, settings and versions."""

    slug = "signs"

    def read(self, passage: Passage, found: Findings) -> None:
        """Adds at most one progress sign a passage and what the text states about settings and torch."""
        last: Sign | None = None
        for line in passage.lines:
            if not passage.stretch.accepts(line.no):
                continue
            text = line.full
            if "ALLOC_CONF" in text:
                match = _CONF.search(text)
                if match and "to avoid frag" not in text[match.end() : match.end() + 16]:
                    found.conf = match["conf"].rstrip(",")
            if "orch" in text:
                version = versions.explicit(text)
                if version is not None:
                    found.torch.append(version)
            if len(text) < 2000:
                progress = _PROGRESS.search(text)
                if progress and "Process " not in text and "File " not in text:
                    count = next(int(v) for v in progress.groupdict().values() if v is not None)
                    rank = line.rank if line.rank is not None else found.rank
                    last = Sign("progress", text.strip()[:200], line.no, found.source, None, rank, count)
                    if len(found.signs) < 1500:
                        found.signs.append(last)
                elif _LOADING.search(text) and len(found.signs) < 1500:
                    found.signs.append(Sign("loading", text.strip()[:200], line.no, found.source, None, line.rank))
