"""Versions: what git and DVC say a corpus or a model is, and its releases."""
