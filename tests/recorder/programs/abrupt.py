import os

print("out", flush=True)
os._exit(5)
