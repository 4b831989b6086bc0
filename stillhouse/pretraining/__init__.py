"""Pre-training: corruptions, bottleneck models and the table of objectives (SimLM, BoW, CDMAE)."""
