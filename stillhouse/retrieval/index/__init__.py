"""Vectors of a corpus, the indexes over them, and exact search."""
