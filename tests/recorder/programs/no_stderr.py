import sys

sys.stderr = None
sys.excepthook = None
raise ValueError("said to nobody")
