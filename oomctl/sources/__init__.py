"""Bytes into the model: one file a format, a registry, decompression, the decoder that refuses code."""
