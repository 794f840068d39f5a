import sys

sys.excepthook = None
raise ValueError("the hook is None")
