"""Measures retrievers and BM25 on many corpora that they were not trained on."""
