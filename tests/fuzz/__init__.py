"""Mutated inputs by the thousand: ``python -m tests.fuzz --minutes 10``."""
