import sys

sys.excepthook = lambda kind, error, trace: print("own hook:", kind.__name__, error, trace.tb_frame.f_code.co_name)
raise RuntimeError("seen by the program's own hook")
