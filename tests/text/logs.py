"""The pasted logs of fixtures/logs and what must be read out of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from oomctl.model.evidence import Evidence
from oomctl.model.log import TextFindings
from oomctl.sources.text import merge, read_text

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "logs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))
FIGURES = ("backend", *merge.FIGURES)


def raw(name: str) -> bytes:
    return (FOLDER / f"{name}.txt").read_bytes()


def expected(name: str) -> dict:
    return json.loads((FOLDER / f"{name}.json").read_text())


def evidence(found: TextFindings) -> Evidence:
    return Evidence(
        oom_events=found.oom_events,
        memory_summaries=found.memory_summaries,
        memory_stats=found.memory_stats,
        series=found.series,
        smi=found.smi,
        signs=found.signs,
        tracebacks=found.tracebacks,
        conf=found.conf,
        torch=found.torch,
        skipped=found.skipped,
    )


def cells(found: TextFindings) -> list:
    return [
        (
            table.device,
            table.num_ooms,
            table.num_alloc_retries,
            {
                label: {pool: dataclasses.astuple(cell) for pool, cell in row.items()}
                for label, row in table.rows.items()
            },
        )
        for table in found.memory_summaries
    ]


def figures(data: bytes) -> tuple[list, list]:
    """Every figure of the failures and of the tables; what mangling must not change."""
    found = read_text([data])
    return [tuple(getattr(e, key) for key in FIGURES) for e in found.oom_events], cells(found)
