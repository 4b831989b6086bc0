"""Durations in human-readable form."""

from __future__ import annotations


def in_words(seconds: float) -> str:
    """Seconds below 90 s, minutes below 90 min, else hours with one decimal."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
