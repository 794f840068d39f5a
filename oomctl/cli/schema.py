"""`oomctl schema`."""

from __future__ import annotations

from oomctl.cli import exits
from oomctl.cli.output import write_stdout


def schema() -> int:
    """Print the JSON Schema of the reports that --json prints."""
    import json

    from oomctl.api import report_schema

    write_stdout(json.dumps(report_schema(), indent=2, ensure_ascii=False))
    return exits.OK
