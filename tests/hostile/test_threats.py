"""Every row of README's threat table names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECTION = re.compile(r"^## Safe to open anything\n(.*?)^## ", re.DOTALL | re.MULTILINE)
ROW = re.compile(r"^\| ([^|]+) \| ([^|]+) \| `([\w/.]+)::(\w+)` \|$", re.MULTILINE)


def test_each_threat_is_shown_by_a_test() -> None:
    section = SECTION.search((ROOT / "README.md").read_text(encoding="utf-8"))
    assert section is not None
    rows = ROW.findall(section[1])
    assert len(rows) == len(re.findall(r"^\|", section[1], re.MULTILINE)) - 2
    assert len(rows) > 15
    for _, _, file, name in rows:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, (file, name)
