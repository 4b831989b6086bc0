"""Encoders and re-rankers, their files and settings, and what computes them faster."""
