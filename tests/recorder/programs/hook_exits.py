import sys


def hook(kind, error, trace):
    sys.exit(5)


sys.excepthook = hook
raise ValueError("never printed")
