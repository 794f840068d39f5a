"""Work for fleets: what goes well, what dies, what never ends."""

from __future__ import annotations

import os
import signal
import time


def double(task: int) -> int:
    return 2 * task


def deadly(task: int) -> int:
    if task == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    if task == 5:
        os._exit(7)
    return 2 * task


def slow(task: int) -> int:
    if task == 1:
        time.sleep(600)
    return 2 * task


def pid(task: int) -> int:
    return os.getpid()
