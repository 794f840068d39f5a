"""The sources, in the order in which they are asked; text is last because it takes nearly anything."""

from __future__ import annotations

from typing import Final

from oomctl.sources.base import Source
from oomctl.sources.bundle import BundleSource
from oomctl.sources.htmls import HtmlSource
from oomctl.sources.jsons import JsonSource
from oomctl.sources.pickles import PickleSource
from oomctl.sources.texts import TextSource

SOURCES: Final[tuple[Source, ...]] = (PickleSource(), HtmlSource(), BundleSource(), JsonSource(), TextSource())
