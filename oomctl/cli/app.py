"""Builds the typer application around the one command that was asked for."""

from __future__ import annotations

import typer

from oomctl import __version__
from oomctl._native import version_line
from oomctl.cli.registry import COMMANDS, Command

EPILOG = (
    "Exit codes: 0 report made; 1 a finding that --fail-on asked about; 2 wrong usage or unreadable input; "
    "3 a bug in oomctl; 130 interrupted."
)


def build_app(selected: str | None, *, everything: bool = False) -> typer.Typer:
    """The application; commands other than the selected one are only names with a line of help.

    Args:
        selected: Name of the command whose options are needed; None for the list of commands.
        everything: Load every command, as shell completion needs it.
    """
    app = typer.Typer(
        name="oomctl",
        rich_markup_mode=None,  # plain help: no markup to misread, the same text in any terminal and in the README
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        help="CUDA out of memory: fragmentation, a leak or a peak? Whose line? What to change, proved by replay.",
        epilog=EPILOG,
    )
    app.callback()(_options)
    for command in COMMANDS:
        if command.exists():
            _add(app, command, everything or command.name == selected)
    return app


def _add(app: typer.Typer, command: Command, load: bool) -> None:
    function = command.load() if load else _stub
    settings = {"allow_interspersed_args": False} if command.passes_on else None
    app.command(command.name, short_help=command.help, context_settings=settings)(function)


def _stub() -> None:
    raise AssertionError("a command that was not loaded is only listed")


def _options(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    if version:
        typer.echo(version_line(__version__))
        raise typer.Exit
