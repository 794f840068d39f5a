"""Recording: torch's history of allocations, kept in a bounded ring and written out at the failure.

torch is imported by the program that is recorded, never by this room on its own account.
"""

from __future__ import annotations

from oomctl.recorder.callbacks import lightning_callback, trainer_callback
from oomctl.recorder.recording import Recording, record, step
from oomctl.recorder.settings import Settings

__all__ = ["Recording", "Settings", "lightning_callback", "record", "step", "trainer_callback"]
