"""Fills the device; fill.py [survive] [thread] [sleep SECONDS] [signal]"""

import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.environ.get("FAKE_TORCH", ""))

import torch


def grow():
    kept = []
    for number in range(1000):
        kept.append(torch.empty(100_000))
        torch.optimizer_step()
        if number == 4 and "sleep" in sys.argv:
            time.sleep(float(sys.argv[sys.argv.index("sleep") + 1]))
        if number == 4 and "signal" in sys.argv:
            os.kill(os.getpid(), signal.SIGUSR2)
        if number == 4 and "stop" in sys.argv:
            return


def main():
    rounds = int(sys.argv[sys.argv.index("survive") + 1]) if "survive" in sys.argv else 0
    for _ in range(rounds):
        try:
            grow()
        except torch.OutOfMemoryError:
            torch.device.blocks.clear()
    if rounds:
        print("survived", rounds)
    elif "thread" in sys.argv:
        thread = threading.Thread(target=grow)
        thread.start()
        thread.join()
    else:
        grow()


if __name__ == "__main__":
    main()
