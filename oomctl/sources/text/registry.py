"""The readers of text, in the order in which they look at a passage."""

from __future__ import annotations

from typing import Final

from oomctl.sources.text.base import Reader
from oomctl.sources.text.failures import Failures
from oomctl.sources.text.memory_stats import Stats
from oomctl.sources.text.messages import Messages
from oomctl.sources.text.signs import Signs
from oomctl.sources.text.smi import Smi
from oomctl.sources.text.summary import Summaries
from oomctl.sources.text.tracebacks import Tracebacks

READERS: Final[tuple[Reader, ...]] = (Messages(), Failures(), Summaries(), Stats(), Smi(), Tracebacks(), Signs())
