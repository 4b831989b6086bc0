"""Fixtures of the serving tests."""

from released_repositories import released
from serving_releases import reranking, served, two_releases

__all__ = ["released", "reranking", "served", "two_releases"]
