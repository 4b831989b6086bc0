"""Small pieces of SVG: axes with round ticks, lines, bands and dots, coloured by the page's variables.

Everything is drawn in a box of the given size in CSS pixels, so that text has the page's size. Equal numbers give equal
output.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup, escape

COLOURS = 8
DASHES = ("", "6 3", "2 3")
"""If there are more variants than colours, the colours repeat with another dash pattern."""


@dataclass(frozen=True)
class Scale:
    """Maps values from `low` to `high` onto pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def padded(values: Sequence[float] | np.ndarray, share: float = 0.06) -> tuple[float, float]:
    """A range that contains all values with some room on both sides; never empty."""
    low, high = float(np.min(values)), float(np.max(values))
    room = (high - low) * share or abs(high) * share or 0.5
    return low - room, high + room


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """At most about `count` round numbers (1, 2 or 5 times a power of ten apart) from `low` to `high`."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{number * step:.12g}") for number in range(first, last + 1)]


def number(value: float) -> str:
    """A tick's label: 0.25, 40, 12k."""
    if abs(value) >= 10_000 and value % 1000 == 0:
        return f"{value / 1000:g}k"
    return f"{value:g}".replace("-", "−")


def colour(index: int) -> str:
    return f"var(--c{index % COLOURS})"


def dash(index: int) -> str:
    return DASHES[index // COLOURS % len(DASHES)]


def text(x: float, y: float, words: str, *, anchor: str = "start", kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{name}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str = "rule") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def dot(x: float, y: float, radius: float, fill: str, title: str = "") -> str:
    tooltip = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" fill="{fill}">{tooltip}</circle>'


def path(xs: Sequence[float], ys: Sequence[float], stroke: str, dashes: str, title: str) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(xs, ys))
    pattern = f' stroke-dasharray="{dashes}"' if dashes else ""
    return (
        f'<polyline points="{points}" fill="none" stroke="{stroke}"{pattern} class="curve">'
        f"<title>{escape(title)}</title></polyline>"
    )


def band(xs: Sequence[float], low: Sequence[float], high: Sequence[float], fill: str) -> str:
    points = [f"{x:.1f},{y:.1f}" for x, y in zip(xs, high)] + [f"{x:.1f},{y:.1f}" for x, y in zip(xs, low)][::-1]
    return f'<polygon points="{" ".join(points)}" fill="{fill}" class="band"/>'


def image(width: float, height: float, parts: Sequence[str], description: str) -> Markup:
    """The SVG element, with a description for screen readers."""
    head = f'<svg viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img"'
    return Markup(f'{head} aria-label="{escape(description)}">\n' + "\n".join(parts) + "\n</svg>")


def axes(x: Scale, y: Scale, x_label: str, x_ticks: int = 5, y_ticks: int = 5) -> list[str]:
    """Horizontal rules with numbers on the left, numbers below, and the name of the x axis."""
    parts = []
    for value in ticks(y.low, y.high, y_ticks):
        parts += [
            line(x.start, y(value), x.end, y(value)),
            text(x.start - 6, y(value) + 4, number(value), anchor="end"),
        ]
    for value in ticks(x.low, x.high, x_ticks):
        parts.append(text(x(value), y.start + 16, number(value), anchor="middle"))
    return [*parts, text((x.start + x.end) / 2, y.start + 32, x_label, anchor="middle", kind="label")]
