"""How the values of options are read; nothing here needs the parser."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from oomctl.errors import OomctlError

FORMATS: Final = ("terminal", "text", "json", "html", "markdown")
REDACTIONS: Final = ("paths", "all", "none")


def chosen_format(fmt: str | None, json: bool) -> str:
    """The format to print.

    Raises:
        OomctlError: Unknown, or two different ones were asked for.
    """
    if json:
        if fmt not in (None, "json"):
            raise OomctlError(f"--json and --format {fmt} contradict each other", "leave one of them out")
        return "json"
    if fmt is None:
        return "terminal"
    if fmt not in FORMATS:
        raise OomctlError(f"no format {fmt!r}", "one of " + ", ".join(FORMATS))
    return fmt


def chosen_files(html: str | None, outputs: Sequence[str] | None) -> tuple[tuple[str, str], ...]:
    """Files to write as (path, format).

    Raises:
        OomctlError: A file's name does not tell its format.
    """
    files = [] if html is None else [(html, "html")]
    if not outputs:
        return tuple(files)
    from oomctl import api

    by_suffix = {".txt": "terminal"} | {end: fmt for fmt, ends in api.formats().items() for end in ends}
    for path in outputs:
        fmt = by_suffix.get(os.path.splitext(path)[1].lower())
        if fmt is None:
            hint = "use a name that ends in " + ", ".join(sorted(by_suffix))
            raise OomctlError(f"cannot tell the format of {path!r} from its name", hint)
        files.append((path, fmt))
    return tuple(files)


def chosen_classes(fail_on: Sequence[str] | None) -> tuple[str, ...]:
    """Classes that fail the run; "any" is every class but no_oom.

    Raises:
        OomctlError: There is no such class.
    """
    if not fail_on:
        return ()
    from oomctl.model.report import CLASSES

    chosen: list[str] = []
    for word in ",".join(fail_on).split(","):
        slug = word.strip().lower().replace("-", "_")
        if slug == "any":
            chosen += [cls for cls in CLASSES if cls != "no_oom"]
        elif slug in CLASSES:
            chosen.append(slug)
        elif slug:
            raise OomctlError(f"--fail-on: no class {word.strip()!r}", "any, or one of " + ", ".join(CLASSES))
    return tuple(chosen)


def chosen_redaction(redact: str | None) -> str | None:
    """How far names are hidden, None for the default of each format.

    Raises:
        OomctlError: Not one of the three.
    """
    if redact is not None and redact not in REDACTIONS:
        raise OomctlError(f"--redact: no way {redact!r}", "one of " + ", ".join(REDACTIONS))
    return redact


def chosen_size(text: str | None, option: str = "--max-size", example: str = "20GiB") -> int | None:
    """Bytes of an option such as ``--max-size``.

    Raises:
        OomctlError: Not a size.
    """
    from oomctl.units import parse_size

    if text is None:
        return None
    try:
        return parse_size(text)
    except ValueError as error:
        raise OomctlError(f"{option}: {error}", f"write it as {example}") from error
