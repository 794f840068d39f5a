"""The entry point: argv in, exit code out; errors become one line on stderr."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

from oomctl import __version__
from oomctl._native import version_line
from oomctl.cli import exits
from oomctl.cli.chosen import REDACTIONS
from oomctl.cli.output import one_line, silence, unprintable, write_stderr, write_stdout
from oomctl.errors import OomctlError, OomctlWarning

PLAIN_FLAGS = {"--json": "json", "--verbose": "verbose", "-v": "verbose"}
"""Flags that `diagnose` and `summary` share, by the parameter that they make true."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        argv: Arguments without the program's name; those of the process by default.

    Returns:
        The exit code, see `oomctl.cli.exits`.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    if args[:1] != ["run"]:  # there the streams and the environment are the program's
        _forgiving_streams()
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's would start threads that wait for work in a loop
    try:
        if args[:1] == ["--version"]:  # answered before typer is loaded
            write_stdout(version_line(__version__))
            return exits.OK
        with _remarks_on_stderr() if args[:1] != ["run"] else contextlib.nullcontext():
            plain = _plain_call(args)
            return _command(args) if plain is None else plain()
    except OomctlError as error:
        return _complain(error.message, error.hint)
    except KeyboardInterrupt:
        write_stderr("interrupted")
        return exits.INTERRUPTED
    except BrokenPipeError:
        silence(sys.stdout)
        return exits.OK
    except MemoryError:
        return _complain("not enough memory on this machine for these inputs", "give fewer or smaller files at once")
    except Exception as error:  # anything else is our fault, and says so
        return _bug(error)


@contextlib.contextmanager
def _remarks_on_stderr() -> Iterator[None]:
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **how: Any) -> None:
            if issubclass(category, OomctlWarning):
                write_stderr(one_line(f"note: {message}"))
            else:
                usual(message, category, *where, **how)

        warnings.simplefilter("always", OomctlWarning)
        warnings.showwarning = show
        yield


def run() -> None:
    """Console script."""
    code = main()
    if code == exits.INTERRUPTED:
        # CPython remembers an interrupt that came up through exec() of a text, as the making of a dataclass does
        # (run_eval_code_obj), and then dies of SIGINT whatever the exit code; the next exec() makes it forget.
        exec("")
    sys.exit(code)


def _plain_call(args: list[str]) -> Callable[[], int] | None:
    """The command itself, where there is nothing to parse but names of inputs and a few flags.

    The parser takes as long to load as reading a log takes; these calls need none of it.
    """
    if args[:1] not in (["diagnose"], ["summary"]) or "_OOMCTL_COMPLETE" in os.environ:
        return None
    inputs = [arg for arg in args[1:] if arg == "-" or not arg.startswith("-")]
    flags = [arg for arg in args[1:] if arg != "-" and arg.startswith("-")]
    if not inputs or not PLAIN_FLAGS.keys() >= set(flags):
        return None
    from oomctl.cli.report import Ranks, Wanted, report_on

    wanted = Wanted(
        fmt="json" if "--json" in flags else "terminal",
        verbose=any(PLAIN_FLAGS[flag] == "verbose" for flag in flags),
        job=Ranks() if args[0] == "diagnose" else None,
    )
    return partial(report_on, inputs, wanted)


def _command(args: list[str]) -> int:
    import typer

    from oomctl.cli.app import build_app

    selected = next((arg for arg in args if not arg.startswith("-")), None)
    app = build_app(selected, everything="_OOMCTL_COMPLETE" in os.environ)
    # Usage errors share this base; it belongs to the click inside typer, which is not ours to import.
    usage_error = cast("type[Exception]", typer.BadParameter.__mro__[1])
    try:
        spelt = args if selected == "run" else _spell_out(args)
        code = typer.main.get_command(app).main(spelt, prog_name="oomctl", standalone_mode=False)
    except (typer.Abort, EOFError):
        code = exits.INTERRUPTED
    except usage_error as error:
        return _usage(error)
    except SystemExit as error:  # completion ends so, and typer when its help meets a closed pipe
        return exits.OK if isinstance(error.__context__, OSError) else int(error.code or 0)
    except OSError as error:
        import traceback

        if any(frame.f_code is typer.echo.__code__ for frame, _ in traceback.walk_tb(error.__traceback__)):
            raise unprintable(error) from error  # the help and completion, which typer prints
        raise
    if callable(code):  # a program to run: without the parser's frames below it
        return int(code())
    if code == exits.INTERRUPTED:
        write_stderr("interrupted")
    return code if isinstance(code, int) else exits.OK


def _spell_out(args: list[str]) -> list[str]:
    """Gives a bare ``--redact`` its value, which typer cannot express as optional."""
    spelt: list[str] = []
    for index, arg in enumerate(args):
        if arg == "--":
            return spelt + args[index:]
        bare = arg == "--redact" and args[index + 1 : index + 2] not in [[value] for value in REDACTIONS]
        spelt.append("--redact=paths" if bare else arg)
    return spelt


def _usage(error: BaseException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "oomctl"
    message = str(getattr(error, "format_message", lambda: str(error))())
    if type(error).__name__ == "NoArgsIsHelpError":  # a bare `oomctl`: the help is the answer
        write_stdout(message)
        return exits.USAGE
    unknown = re.match(r"No such command '(.+?)'\.?$", message)
    if unknown is not None and os.path.exists(unknown[1]):  # a file where the command should be
        return _complain(
            f"{unknown[1]} is a file or folder, and no command came before it", f"oomctl diagnose {unknown[1]}"
        )
    return _complain(" ".join(message.split()).rstrip("."), f"{path} --help")


def _complain(message: str, hint: str) -> int:
    write_stderr("error: " + one_line(message))
    if hint:
        write_stderr("hint: " + one_line(hint))
    return exits.USAGE


def _bug(error: Exception) -> int:
    import traceback

    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{os.path.basename(last.filename)}:{last.lineno}"
    write_stderr(one_line(f"error: this is a bug in oomctl {__version__}: {type(error).__name__}: {error} ({where})"))
    if os.environ.get("OOMCTL_DEBUG") == "1":
        write_stderr("".join(traceback.format_exception(error)))
    else:
        write_stderr("hint: please report it with the traceback that OOMCTL_DEBUG=1 prints")
    return exits.BUG


def _forgiving_streams() -> None:
    """A closed stream swallows; an old code page or LANG=C prints a question mark instead of failing half-way."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 (it stays open to the end)
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
