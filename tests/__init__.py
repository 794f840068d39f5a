"""Tests of oomctl."""
