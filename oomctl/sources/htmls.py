"""HTML pages with data inside: oomctl's own report, and torch's `_memory_viz.py trace_plot` page."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final

from oomctl.errors import OomctlError
from oomctl.model.common import VersionRange
from oomctl.progress import Progress
from oomctl.sources.base import Findings, Place
from oomctl.sources.content import Content
from oomctl.sources.jsons import load_json
from oomctl.sources.looks import hint_for, is_html

_EMBEDDED: Final = re.compile(rb"<script[^>]*\btype=[\"']application/json[\"'][^>]*>(.*?)</script>", re.DOTALL)
_VIZ: Final = re.compile(rb'"base64"\s*:\s*"([A-Za-z0-9+/=\s]+)"')


class HtmlSource:
    """A page that embeds a report or a snapshot."""

    slug = "html"

    def sniff(self, head: bytes) -> bool:
        """Whether it is an HTML page."""
        return is_html(head)

    def read(self, content: Content, place: Place, progress: Progress) -> Findings:
        """Finds what is embedded; scripts are data here and never run."""
        page = content.whole()
        for match in _EMBEDDED.finditer(page):
            data = load_json(match[1])
            if isinstance(data, dict) and str(data.get("schema", "")).startswith("oomctl.report/"):
                return Findings("report", "html", VersionRange(), report=data)
        viz = _VIZ.search(page)
        if viz is None:
            raise OomctlError("an HTML page, not a memory snapshot or a log", hint_for("an HTML page"))
        try:
            data = base64.b64decode(viz[1])
        except binascii.Error as error:
            raise OomctlError("an HTML page whose embedded snapshot is damaged") from error
        from oomctl.sources.snapshot_pickle import read_pickle

        snapshot = read_pickle(data)
        return Findings("snapshot", "html page of torch's _memory_viz", snapshot.torch, (snapshot,))
