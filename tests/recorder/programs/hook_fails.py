import sys


def hook(kind, error, trace):
    assert sys.exc_info() == (None, None, None)
    raise KeyError("in the hook")


sys.excepthook = hook
try:
    raise TypeError("first")
except TypeError as first:
    raise ValueError("second") from first
