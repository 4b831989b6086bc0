"""Evaluation: measures, significance and the report."""
