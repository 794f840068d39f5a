"""Which advice goes with which functions: names that only resemble one another are kept apart."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oomctl.model.conclusion import Conclusion, Facts
from oomctl.model.report import Device, Report, Verdict
from oomctl.remedies import advise

CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "cases.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES, ids=[c["case"] for c in CASES])
def test_the_advice_fits_the_functions(case: dict[str, Any]) -> None:
    verdict = Verdict(case["class"], case.get("subtype"), "OOM000", "high", "it failed")
    facts = Facts(
        phase=case.get("phase", "unknown"),
        operation=case.get("operation", ""),
        site=case.get("site"),
        functions=tuple(case["functions"]),
        hint=tuple(case.get("hint", ())),
    )
    slugs = [
        r.slug
        for r in advise(Conclusion(Report("0", (), Device("cuda", 0), verdict), facts)).remedies
        if r.kind != "alloc_conf"
    ]
    assert slugs[:1] == ([case["first"]] if "first" in case else slugs[:1])
    assert not set(slugs) & set(case.get("never", ()))
    assert len(slugs) == 1 or not case.get("only")
