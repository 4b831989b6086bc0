"""Search: BM25, dense, hybrid, and the choice between them."""
