"""The comparison's plots: signals, coverage or a setting, with a line per variant."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from stillhouse.evaluation.report.curves import FAINT, INK, PALETTE, as_svg, drawing
from stillhouse.experiments.comparison.signals import Curve
from stillhouse.experiments.comparison.sweep import Sweep
from stillhouse.experiments.comparison.table import Table

DASHES = ("solid", "dashed", "dotted")
"""If there are more variants than colours, the colours repeat with another line."""


def colours(sweep: Sweep) -> dict[str, int]:
    """The number of each variant's colour, the same in all plots."""
    return {variant.name: i for i, variant in enumerate(sweep.variants)}


def paint(number: int) -> str:
    """The colour of this number in a plot."""
    return PALETTE[number % len(PALETTE)]


def dash(number: int) -> str:
    """The kind of line of this number."""
    return DASHES[number // len(PALETTE) % len(DASHES)]


def curve_plot(
    curves: Sequence[Curve], sweep: Sweep, name: str, x_label: str = "step", *, wide: bool = False
) -> Markup:
    """One line per variant, with the range of its seeds as a band."""
    numbers = colours(sweep)
    lines = [(numbers[curve.variant], curve) for curve in curves]
    return _line_plot(lines, x_label, f"{name} over {x_label}, one line per variant", (7.6, 3) if wide else (3.4, 2.4))


def axis_plot(table: Table) -> Markup:
    """The first measure over the setting in the sweep's `axis`, one line per objective.

    Empty without an axis, or if fewer than two variants have a number for it.
    """
    axis, measure = table.sweep.axis, table.measures[0]
    groups: dict[str, list[tuple[float, ...]]] = {}
    for row in table.done:
        settings = dict(table.sweep.overrides) | dict(row.variant.overrides)
        value = settings.pop(axis, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            figure = row.figures[measure]
            name = str(settings.get("pretraining.objective", "")) or measure
            groups.setdefault(name, []).append((float(value), figure.mean, figure.lowest, figure.highest))
    if sum(map(len, groups.values())) < 2:
        return Markup("")
    lines = [(number, Curve(name, *np.array(sorted(groups[name])).T)) for number, name in enumerate(groups)]
    label = axis.split(".")[-1].replace("_", " ")
    return _line_plot(lines, label, f"{measure} over {axis}", (7.6, 3.2), legend=True)


def _line_plot(
    lines: Sequence[tuple[int, Curve]],
    x_label: str,
    description: str,
    size: tuple[float, float],
    *,
    legend: bool = False,
) -> Markup:
    """Lines with bands, each with the number of its colour."""
    with drawing():
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.add_subplot()
        for number, curve in lines:
            marker = "o" if len(curve.steps) <= 12 else ""
            axes.fill_between(curve.steps, curve.low, curve.high, color=paint(number), alpha=0.16, linewidth=0)
            axes.plot(
                curve.steps,
                curve.mean,
                color=paint(number),
                linestyle=dash(number),
                marker=marker,
                markersize=4,
                label=curve.variant,
            )
        axes.set_xlabel(x_label)
        axes.grid(axis="y", color=FAINT, linewidth=0.8)
        axes.locator_params(axis="both", nbins=5)
        if legend:
            axes.legend(frameon=False, fontsize=9, labelcolor=INK)
        return Markup(as_svg(figure, description))
