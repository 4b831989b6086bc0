"""Hard negatives: finding wrong passages, and leaving out those that only seem wrong."""
