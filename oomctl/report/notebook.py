"""Reports and inputs in a notebook: fragments of HTML that need no network and leave the page around them alone."""

from __future__ import annotations

from html import escape

import numpy as np

from oomctl.model.evidence import Evidence
from oomctl.model.report import Report
from oomctl.model.snapshot import Action, BlockState, DeviceSnapshot, Snapshot
from oomctl.units import format_size

HEIGHT = 640
"""Pixels of the frame that a report is shown in."""
_HEADINGS = ("GPU", "reserved", "in use", "idle", "segments", "blocks", "events", "failures")


def report_html(report: Report, page: str) -> str:
    """A report as a frame with its whole page in it, below its first line.

    The page is a document of its own: its styles do not reach the notebook, and its script cannot.

    Args:
        report: What was concluded.
        page: Its HTML page.
    """
    verdict = report.verdict
    head = f"{verdict.code} {verdict.cls.replace('_', ' ')}".strip()
    return (
        f"<p><b>{escape(head)}</b> · {escape(verdict.headline)}</p>"
        f'<iframe title="oomctl report" sandbox="allow-scripts" srcdoc="{escape(page, quote=True)}" '
        f'style="width:100%;height:{HEIGHT}px;border:1px solid #8884"></iframe>'
    )


def snapshot_html(snapshot: Snapshot) -> str:
    """A snapshot as a table with a row for each GPU.

    Args:
        snapshot: What was read.
    """
    conf = snapshot.settings.conf if snapshot.settings is not None else None
    about = f"memory snapshot · torch {snapshot.torch} · settings {'not recorded' if conf is None else conf or 'none'}"
    rows = "".join(_row(device) for device in snapshot.devices)
    head = "".join(f"<th>{name}</th>" for name in _HEADINGS)
    limits = "".join(f"<li>{escape(one.what)}: {escape(one.reason)}</li>" for one in snapshot.skipped)
    told = f"<p>not read:</p><ul>{limits}</ul>" if limits else ""
    return f"<p>{escape(about)}</p><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{told}"


def evidence_html(evidence: Evidence) -> str:
    """Inputs as a list of files, and a table for each snapshot.

    Args:
        evidence: What was read.
    """
    files = "".join(
        f"<li><code>{escape(one.path)}</code>: {escape(one.kind)}, {escape(one.format)}, {format_size(one.size)}</li>"
        for one in evidence.inputs
    )
    messages = len(evidence.oom_events)
    told = f"<p>{messages:,} out-of-memory message{'s' if messages != 1 else ''} in text</p>" if messages else ""
    return f"<ul>{files}</ul>{told}" + "".join(snapshot_html(one) for one in evidence.snapshots)


def _row(device: DeviceSnapshot) -> str:
    reserved = int(device.segments.size.sum())
    used = int(device.blocks.size[device.blocks.state != BlockState.INACTIVE].sum())
    trace = device.trace
    cells = (
        str(device.index),
        format_size(reserved),
        format_size(used),
        format_size(reserved - used),
        f"{len(device.segments):,}",
        f"{len(device.blocks):,}",
        "none" if trace is None else f"{len(trace):,}",
        "unknown" if trace is None else f"{int(np.count_nonzero(trace.action == Action.OOM)):,}",
    )
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"
