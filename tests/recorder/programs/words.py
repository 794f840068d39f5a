import sys

sys.exit("the reason in words")
