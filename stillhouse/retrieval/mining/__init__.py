"""Hard negatives: which passages are wrong answers, and which only seem to be."""
