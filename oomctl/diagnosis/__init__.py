"""One detector a class, the weighing, culprit ranking."""
