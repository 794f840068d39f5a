"""The detectors, in the order in which their findings are shown when shares are equal."""

from __future__ import annotations

from typing import Final

from oomctl.diagnosis.base import Detector
from oomctl.diagnosis.capacity import Capacity
from oomctl.diagnosis.external import External
from oomctl.diagnosis.fragmentation import Fragmentation
from oomctl.diagnosis.leak import Leak
from oomctl.diagnosis.peak import TransientPeak

DETECTORS: Final[tuple[Detector, ...]] = (External(), Fragmentation(), Leak(), TransientPeak(), Capacity())
"""One a class."""
