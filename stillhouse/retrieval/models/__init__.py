"""Encoders and re-rankers, and their files."""
