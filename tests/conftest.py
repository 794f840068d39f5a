"""What holds for all tests."""

from __future__ import annotations

import signal

# A run that a shell put into the background inherits that Ctrl-C is ignored, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
