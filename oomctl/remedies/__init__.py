"""The catalogue of settings, code changes and operations, and what goes with what."""
