"""Fixtures of the serving tests."""

from released_repositories import released
from serving_releases import served, two_releases

__all__ = ["released", "served", "two_releases"]
