"""Search: corpus vectors and the indexes over them, BM25, dense, hybrid, and the choice between them."""
