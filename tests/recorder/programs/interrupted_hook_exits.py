import sys


def hook(kind, error, trace):
    raise SystemExit("leaving")


sys.excepthook = hook
raise KeyboardInterrupt
