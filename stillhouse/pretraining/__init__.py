"""Pre-training: corruptions, bottleneck models and the table of objectives (papers 001, 002, 003)."""
