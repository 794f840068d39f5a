import sys

del sys.excepthook
raise ValueError("the hook is gone")
