"""Retrieval: the bi-encoder, the cross-encoder, their losses, negatives, indexes and runs."""
