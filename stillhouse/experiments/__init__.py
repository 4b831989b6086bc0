"""Experiments: several variants or many corpora in one table."""
