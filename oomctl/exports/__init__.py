"""Snapshots in the forms of other tools: tables, databases, traces, flame graphs, snapshots, a script that reproduces.

A format is a file of its own and a line in `registry.FORMATS`.
"""
