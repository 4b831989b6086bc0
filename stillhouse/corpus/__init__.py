"""The corpus: reading sources, the Parquet form that every step shares, and the checks on it."""
