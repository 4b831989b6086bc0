"""Corpus vectors, the indexes over them, and exact search."""
