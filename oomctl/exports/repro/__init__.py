"""A script that makes the same requests of a GPU and fails the same way: the pattern, its test by replay, its text."""
