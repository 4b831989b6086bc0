"""Lengths of time as a person says them."""

from __future__ import annotations


def in_words(seconds: float) -> str:
    """As seconds below 90, as minutes below 90, else as hours with one decimal."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
