import sys


def hook(kind, error, trace):
    raise KeyboardInterrupt


sys.excepthook = hook
raise ValueError("printed second")
