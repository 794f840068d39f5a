import os
import sys

child = os.fork()
if child == 0:
    sys.exit(3)
print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
