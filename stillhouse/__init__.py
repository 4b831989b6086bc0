"""Stillhouse turns a text corpus into a distilled dense retriever and its search index."""

__version__ = "0.1.0"
