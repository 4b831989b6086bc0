"""The fixtures of tests that serve."""

from serving_releases import served, two_releases

__all__ = ["served", "two_releases"]
