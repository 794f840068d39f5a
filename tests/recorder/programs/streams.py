import sys

print(sys.stdout.errors, sys.stderr.errors, sys.stdin.read())
