"""Durations in human-readable form."""

from __future__ import annotations

from collections.abc import Mapping

SHORT, SHORT_SHARE = 5.0, 0.02
"""A stage that takes fewer seconds and a smaller share of the total is not listed by name."""
WIDTH = 98
"""The characters of a line of `by_stage`."""


def in_words(seconds: float) -> str:
    """Seconds below 90 s, minutes below 90 min, else hours with one decimal."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def by_stage(seconds: Mapping[str, float]) -> list[str]:
    """Stages with their seconds, in the given order, as lines "ingest 8 s, distilled 3 min, 2 others 4 s".

    Only those are named that take at least `SHORT` seconds or `SHORT_SHARE` of the whole.
    """
    least = min(SHORT, SHORT_SHARE * sum(seconds.values()))
    parts = [f"{name} {in_words(each)}" for name, each in seconds.items() if each >= least]
    others = [each for each in seconds.values() if each < least]
    if others:
        parts.append(f"{len(others)} other{'s' * (len(others) > 1)} {in_words(sum(others))}")
    lines = [""]
    for number, part in enumerate(parts, start=1):
        part += "," * (number < len(parts))
        if lines[-1] and len(lines[-1]) + 1 + len(part) > WIDTH:
            lines.append("")
        lines[-1] += f" {part}" if lines[-1] else part
    return lines
