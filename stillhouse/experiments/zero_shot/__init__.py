"""Retrievers and BM25 on many corpora that none of them was trained on."""
