"""The commands; a module is imported only when its command is called."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple


class Command(NamedTuple):
    """One command of the command line.

    Attributes:
        name: What the user types.
        module: Module that holds it; a command whose module is not there is not offered.
        function: Function in it, annotated for typer; returns an exit code (see `oomctl.cli.exits`).
        help: One line for the list of commands.
        passes_on: Whether what follows the first argument belongs to another program, options and all.
    """

    name: str
    module: str
    function: str
    help: str
    passes_on: bool = False

    def exists(self) -> bool:
        """Whether its module is part of this installation."""
        return find_spec(self.module) is not None

    def load(self) -> Callable[..., Any]:
        """The function that carries it out."""
        function: Callable[..., Any] = getattr(import_module(self.module), self.function)
        return function


COMMANDS: tuple[Command, ...] = (
    Command(
        "diagnose",
        "oomctl.cli.diagnose",
        "diagnose",
        "Say why the memory ran out, whose line it was and what to change.",
    ),
    Command(
        "summary",
        "oomctl.cli.summary",
        "summary",
        "The same from pasted text: an error message, memory_summary(), a log.",
    ),
    Command(
        "culprits", "oomctl.cli.culprits", "culprits", "List who holds the live bytes at any moment of a snapshot."
    ),
    Command("diff", "oomctl.cli.diff", "diff", "Compare two runs: which place costs how much more, and a gate for CI."),
    Command("whatif", "oomctl.cli.whatif", "whatif", "Replay a snapshot under other allocator settings."),
    Command(
        "export", "oomctl.cli.export", "export", "Write a snapshot as tables, traces, flame graphs, or a reproducer."
    ),
    Command("run", "oomctl.cli.run", "run", "Run a training script and record what an OOM needs.", passes_on=True),
    Command("conf", "oomctl.cli.conf", "conf", "Check a PYTORCH_CUDA_ALLOC_CONF string against a version of torch."),
    Command(
        "explain", "oomctl.cli.explain", "explain", "Explain a verdict, a setting, a number or how the allocator works."
    ),
    Command("mcp", "oomctl.cli.mcp", "mcp", "Serve diagnose, whatif, culprits and explain to an agent (MCP on stdio)."),
    Command("demo", "oomctl.cli.demo", "demo", "List the recorded failures that ship with oomctl, or diagnose one."),
    Command("schema", "oomctl.cli.schema", "schema", "Print the JSON Schema of the reports."),
)
