"""Frozen types in torch's words: what inputs prove (`Evidence`) and what is concluded (`Report`)."""
