"""`oomctl mcp`: diagnose, whatif, culprits and explain for agents, over the Model Context Protocol on stdio."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from oomctl.cli import exits
from oomctl.errors import OomctlError

INSTRUCTIONS: Final = (
    "Says why PyTorch ran out of GPU memory, whose line it was and what to change, from memory snapshots and logs on "
    "this machine. Start with `diagnose`. Sizes are bytes; null is unknown, never 0. What a report's limits say could "
    "not be told must not be guessed. Nothing from the files is run, and nothing is written or sent."
)
HEAVY: Final = ("timeline", "segment_map", "memory_summaries", "table_notes", "whatif")
"""Keys of a report that are pictures rather than findings; `diagnose` leaves them out."""


def mcp() -> int:
    """Serve diagnose, whatif, culprits and explain to an agent, on stdin and stdout.

    Register it with the agent as the command "oomctl mcp". Needs oomctl[mcp].
    """
    server().run("stdio")
    return exits.OK


def server() -> Any:
    """The server with its tools, not yet started.

    Raises:
        OomctlError: The SDK is not installed.
    """
    server_class, error_class = _sdk()
    made = server_class("oomctl", instructions=INSTRUCTIONS)
    for tool in (diagnose, whatif, culprits, explain):
        made.add_tool(_speaking(tool, error_class), name=tool.__name__, structured_output=False)
    return made


def diagnose(inputs: list[str], device: int | None = None, torch: str | None = None, full: bool = False) -> str:
    """Say why the memory ran out, with evidence, the books of every byte, culprits, remedies and limits, as JSON.

    Args:
        inputs: Paths of a memory snapshot and, if there is one, the log of the same run; or of a log alone.
        device: Report on this GPU.
        torch: The version of torch that ran, such as 2.9, if the inputs leave it open.
        full: Also give the curves, the segment map and the tables.
    """
    import json

    from oomctl import api

    report = api.diagnose(inputs, device=device, torch=torch)
    found = json.loads(api.render(report, "json"))
    if not full:
        for key in HEAVY:
            found.pop(key, None)
    return json.dumps(found, ensure_ascii=False)


def whatif(snapshot: str, confs: list[str] | None = None, limit: str | None = None, fit: bool = False) -> str:
    """Replay a snapshot's requests under other allocator settings; says whether each would have served the failing one.

    Args:
        snapshot: Path of a snapshot with events.
        confs: Settings such as "expandable_segments:True"; "" is the defaults; none tries a sensible set.
        limit: Let the allocator reserve this much, such as 24GiB.
        fit: Also find the smallest limit at which everything is served.
    """
    from oomctl import api
    from oomctl.cli.chosen import chosen_size

    found = api.what_if(snapshot, confs, limit=chosen_size(limit, "limit"), fit=fit)
    return api.render_whatif(found, "json")


def culprits(snapshot: str, at: str | None = None, by: str = "frame", device: int | None = None) -> str:
    """List who holds the live bytes at one moment, largest first; the rows sum to what is live.

    Args:
        snapshot: Path of a snapshot.
        at: "oom", "peak", "end" or the index of an event; by default the failure, else the peak.
        by: "frame", "stack" or "size".
        device: Ordinal of the GPU.
    """
    from oomctl import api

    return api.render_holdings(api.holdings(snapshot, at=at, by=by, device=device), "json")


def explain(what: str) -> str:
    """Explain a verdict's code, an allocator setting, a number, or answer a question in words.

    Args:
        what: For example "OOM101", "expandable_segments" or "reserved but unallocated".
    """
    from oomctl.cli.explain import page_about

    page = page_about(what)
    return f"{page.title}\n\n{page.text}"


def _speaking(tool: Callable[..., str], error_class: type[Exception]) -> Callable[..., str]:
    """The tool with the errors that the SDK takes for answers, the hint included."""
    from functools import wraps

    @wraps(tool)
    def told(*args: Any, **options: Any) -> str:
        try:
            return tool(*args, **options)
        except OomctlError as error:
            raise error_class(". ".join(filter(None, (error.message, error.hint)))) from error

    return told


def _sdk() -> tuple[Any, type[Exception]]:
    """The SDK's server, called FastMCP in its first major version, and its error of a tool."""
    from importlib import import_module

    for module, name in (("mcp.server.mcpserver", "MCPServer"), ("mcp.server.fastmcp", "FastMCP")):
        try:
            return getattr(import_module(module), name), import_module(f"{module}.exceptions").ToolError
        except ImportError:
            continue
    raise OomctlError("the mcp SDK is not installed, which this needs", "pip install 'oomctl[mcp]'")
