"""Pages about where torch reads its allocator settings, and how versions differ."""

from __future__ import annotations

from typing import Final

from oomctl.model.alloc_conf.differences import DIFFERENCES
from oomctl.model.pages import Page

SETTINGS_PAGES: Final[tuple[Page, ...]] = (
    Page(
        "",
        "settings",
        "Allocator settings: where torch reads them, and how to write them",
        """Settings are one string in an environment variable, read when the program first uses the GPU:

    export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True

Entries are key:value, separated by commas. No blanks are needed, '=' and ';' are wrong, True and False are spelt
so.

Which variable:

- torch 1.10 to 2.9 on CUDA: PYTORCH_CUDA_ALLOC_CONF only. Torch 2.9 prints that this name is deprecated and advises
PYTORCH_ALLOC_CONF, but its GPU allocator does not read that one: whoever follows the advice on 2.9 loses the
settings.
- torch 2.10 and later: PYTORCH_CUDA_ALLOC_CONF, and where that is not set, PYTORCH_ALLOC_CONF. The old name works
and wins; set to nothing it still hides the new one.
- ROCm: PYTORCH_HIP_ALLOC_CONF (the only one before torch 2.8).
- Ascend: PYTORCH_NPU_ALLOC_CONF.

So PYTORCH_CUDA_ALLOC_CONF is right for every version on CUDA.

In a notebook set it before the first import of torch, or restart the kernel. With torchrun, ray, docker or slurm
check that it reaches the worker: print os.environ there. A program that calls
torch.cuda.memory._set_allocator_settings() replaces max_split_size_mb, garbage_collection_threshold and the
rounding of your string.

A wrong string stops the program at its first use of the GPU; torch 1.10 to 1.13 silently ignore an entry without a
colon. Check it:

    oomctl conf "expandable_segments:True"

`oomctl explain` lists all options.""",
        ("settings-by-version", "expandable_segments", "max_split_size_mb"),
        (
            "PYTORCH_CUDA_ALLOC_CONF",
            "PYTORCH_ALLOC_CONF",
            "PYTORCH_HIP_ALLOC_CONF",
            "environment",
            "variable",
            "deprecated",
            "alloc_conf",
            "options",
            "2.9",
        ),
    ),
    Page(
        "",
        "settings-by-version",
        "How torch versions differ in reading settings",
        "\n".join(f"- {difference.versions}: {difference.what}" for difference in DIFFERENCES)
        + """

How this is known: the grammar was compared with the parsers of released CUDA builds (1.13.1, 2.0.1, 2.1.2, 2.2.2,
2.3.1, 2.4.1, 2.6.0, 2.8.0, 2.9.1, 2.10.0) on some 7,800 generated strings each, and with that of torch 2.13.0 (CPU
build) on 8,000, values in effect included where they can be seen. For other versions it follows the nearest of
these, and the names found in the released libraries.""",
        ("settings", "roundup_power2_divisions", "max_split_size_mb"),
        ("versions", "differences", "parser", "strict", "grammar", "changed"),
    ),
)
