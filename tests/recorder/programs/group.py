import atexit
import threading


def late():
    print("thread", __name__)


atexit.register(print, "at exit", __name__)
threading.Timer(0.2, late).start()
print("main ends")
