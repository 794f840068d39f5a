"""`oomctl schema`."""

from __future__ import annotations

from typing import Annotated

import typer

from oomctl.cli import exits
from oomctl.cli.output import write_stdout
from oomctl.errors import OomctlError


def schema(
    which: Annotated[
        str, typer.Argument(metavar="[report|diff|culprits|whatif]", help="What --json prints.")
    ] = "report",
) -> int:
    """Print the JSON Schema of what --json prints."""
    import json

    from oomctl import api

    schemas = {
        "report": api.report_schema,
        "diff": api.diff_schema,
        "culprits": api.holdings_schema,
        "whatif": api.whatif_schema,
    }
    if which not in schemas:
        raise OomctlError(f"no schema {which!r}", "one of " + ", ".join(schemas))
    write_stdout(json.dumps(schemas[which](), indent=2, ensure_ascii=False))
    return exits.OK
