"""Encoders, re-rankers and their files."""
