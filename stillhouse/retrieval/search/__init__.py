"""Answers: BM25, dense, both together, and which of them is best."""
