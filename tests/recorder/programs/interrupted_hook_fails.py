import sys


def hook(kind, error, trace):
    raise KeyError("in the hook")


sys.excepthook = hook
raise KeyboardInterrupt
