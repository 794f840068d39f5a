"""What agents get: a guide whose commands exist, and a server whose tools answer."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from oomctl import OomctlError, _resources, api
from oomctl.cli import mcp as served
from oomctl.cli.main import main
from oomctl.cli.registry import COMMANDS

from . import cases

TOOLS = {"diagnose", "whatif", "culprits", "explain"}


def test_the_guide_is_a_skill() -> None:
    head, _ = _resources.skill().split("\n---\n", 1)
    fields = dict(line.split(": ", 1) for line in head.splitlines()[1:])
    assert fields["name"] == "oomctl"
    assert 50 < len(fields["description"]) < 1024


def test_the_guide_names_what_exists(capsys: pytest.CaptureFixture[str]) -> None:
    text = _resources.skill()
    known = {command.name for command in COMMANDS}
    assert set(re.findall(r"^    oomctl (\w+)", text, re.MULTILINE)) <= known
    assert main(["diagnose", cases.path("kv-cat"), "--json", "--no-whatif"]) == 0
    report = json.loads(capsys.readouterr().out)
    for key in (
        "verdict.class",
        "verdict.confidence",
        "verdict.contributing",
        "culprits",
        "remedies",
        "limits",
        "budget",
    ):
        part: Any = report
        for name in key.split("."):
            part = part[name]
        assert f"- {key.split('.')[0]}" in text


def test_the_guide_is_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "agents"]) == 0
    shown = capsys.readouterr().out
    assert "oomctl diagnose snapshot.pickle train.log --json" in shown
    assert "---" not in shown


def test_tools_answer_as_the_commands_do() -> None:
    found = json.loads(served.diagnose([cases.path("batch-too-large")]))
    assert found["verdict"]["class"] == "transient_peak"
    assert not set(served.HEAVY) & set(found)
    assert set(served.HEAVY[:2]) <= set(json.loads(served.diagnose([cases.path("batch-too-large")], full=True)))
    replays = json.loads(served.whatif(cases.path("batch-too-large"), ["expandable_segments:True"]))
    assert [run["alloc_conf"] for run in replays["runs"]] == ["expandable_segments:True"]
    held = json.loads(served.culprits(cases.path("batch-too-large"), at="peak"))
    assert sum(row["bytes"] for row in held["rows"]) == held["active"]
    assert "live blocks" in served.explain("OOM101")


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(OomctlError, match="not installed") as raised:
        served.server()
    assert "oomctl[mcp]" in raised.value.hint


def test_the_sdks_client_talks_to_it(tmp_path: Path) -> None:
    sdk = pytest.importorskip("mcp")
    if not hasattr(sdk, "Client"):
        pytest.skip("the client of the first major version")
    root = str(Path(__file__).parents[2])

    async def talk() -> tuple[set[str], Any, Any, Any]:
        command = sdk.StdioServerParameters(command=sys.executable, args=["-m", "oomctl", "mcp"], cwd=root)
        async with sdk.Client(command) as client:
            names = {tool.name for tool in (await client.list_tools()).tools}
            good = await client.call_tool("diagnose", {"inputs": [cases.path("batch-too-large")]})
            bad = await client.call_tool("diagnose", {"inputs": [str(tmp_path / "missing.pickle")]})
            page = await client.call_tool("explain", {"what": "expandable_segments"})
            return names, good, bad, page

    names, good, bad, page = asyncio.run(asyncio.wait_for(talk(), 120))
    assert names == TOOLS
    assert json.loads(good.content[0].text)["verdict"]["class"] == "transient_peak"
    assert bad.is_error
    assert "missing.pickle" in bad.content[0].text
    assert "expandable" in page.content[0].text


def test_pages_for_programs_are_listed() -> None:
    assert [heading for heading, _ in api.explanations()][-1] == "For programs"
