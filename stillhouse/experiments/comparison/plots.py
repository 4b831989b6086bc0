"""The comparison's plots: figures with intervals, ours next to the paper's, signals over steps, coverage over k."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from stillhouse.experiments.comparison import svg
from stillhouse.experiments.comparison.outcomes import Outcome
from stillhouse.experiments.comparison.signals import Curve
from stillhouse.experiments.comparison.sweep import Sweep
from stillhouse.experiments.comparison.table import Table, same_measure

LABELS, ROW = 200, 34


def colours(sweep: Sweep) -> dict[str, int]:
    """The number of each variant's colour, the same in all plots."""
    return {variant.name: i for i, variant in enumerate(sweep.variants)}


def interval_plot(table: Table, outcomes: Sequence[Outcome], references: dict[str, str]) -> Markup:
    """A dot and its interval for every variant, small dots for its seeds, dashed lines for the reference systems."""
    measure, colour = table.measures[0], colours(table.sweep)
    rows = table.done
    lines = {name: table.references[name][measure] for name in references if measure in table.references.get(name, {})}
    ends = [value for row in rows for value in (row.figures[measure].low, row.figures[measure].high)]
    width, top = 760, 30
    bottom = top + ROW * len(rows)
    x = svg.Scale(*svg.padded([*ends, *lines.values()]), LABELS, width - 14)
    parts = []
    for value in svg.ticks(x.low, x.high, 6):
        parts += [
            svg.line(x(value), top, x(value), bottom),
            svg.text(x(value), bottom + 16, svg.number(value), anchor="middle"),
        ]
    for name, value in lines.items():
        parts += [
            svg.line(x(value), top, x(value), bottom, "reference"),
            svg.text(x(value), top - 8, references[name], anchor="middle", kind="label"),
        ]
    for i, row in enumerate(rows):
        y, figure, paint = top + ROW * (i + 0.5), row.figures[measure], svg.colour(colour[row.variant.name])
        parts.append(svg.text(LABELS - 14, y + 4, shortened(row.variant.title), anchor="end", kind="name"))
        parts.append(
            f'<line x1="{x(figure.low):.1f}" y1="{y:.1f}" x2="{x(figure.high):.1f}" y2="{y:.1f}" stroke="{paint}" '
            'class="interval"/>'
        )
        for outcome in outcomes:
            if outcome.variant == row.variant.name and not outcome.failure and len(row.seeds) > 1:
                mean = float(outcome.test[measure].mean())
                parts.append(svg.dot(x(mean), y + 9, 2.5, paint, f"seed {outcome.seed}: {mean:.3f}"))
        parts.append(svg.dot(x(figure.mean), y, 6, paint, f"{row.variant.title}: {figure.mean:.3f}"))
        parts.append(svg.text(x(figure.mean), y - 9, f"{figure.mean:.3f}", anchor="middle", kind="value"))
    parts.append(
        svg.text((x.start + x.end) / 2, bottom + 34, f"{measure} on the test split", anchor="middle", kind="label")
    )
    return svg.image(width, bottom + 42, parts, f"{measure} of every variant, with 95 % intervals")


def published_plot(table: Table) -> Markup:
    """The paper's figures and ours on separate scales, in the paper's order; empty without published figures."""
    if not table.sweep.measures:
        return Markup("")
    published = table.sweep.measures[0]
    ours = same_measure(published, table.measures) or table.measures[0]
    rows = [row for row in table.done if published in row.variant.published]
    if len(rows) < 2:
        return Markup("")
    rows.sort(key=lambda row: -row.variant.published[published])
    colour, width, top, gap = colours(table.sweep), 760, 34, 36
    middle, bottom = LABELS + (width - LABELS) / 2, top + ROW * len(rows)
    left = svg.Scale(*svg.padded([row.variant.published[published] for row in rows], 0.12), LABELS, middle - gap / 2)
    right = svg.Scale(*svg.padded([row.figures[ours].mean for row in rows], 0.12), middle + gap / 2, width - 14)
    parts = [
        svg.text(left.start, 14, f"{table.sweep.source or 'published'}: {published}", kind="name"),
        svg.text(right.start, 14, f"here: {ours}", kind="name"),
    ]
    for scale in (left, right):
        for value in svg.ticks(scale.low, scale.high, 4):
            parts += [
                svg.line(scale(value), top, scale(value), bottom),
                svg.text(scale(value), bottom + 16, svg.number(value), anchor="middle"),
            ]
    for i, row in enumerate(rows):
        y, paint = top + ROW * (i + 0.5), svg.colour(colour[row.variant.name])
        parts.append(svg.text(LABELS - 14, y + 4, shortened(row.variant.title), anchor="end", kind="name"))
        for scale, value, form in (
            (left, row.variant.published[published], "g"),
            (right, row.figures[ours].mean, ".3f"),
        ):
            parts += [
                svg.dot(scale(value), y, 6, paint),
                svg.text(scale(value), y - 9, f"{value:{form}}", anchor="middle", kind="value"),
            ]
    return svg.image(width, bottom + 24, parts, f"{published} as published and {ours} here, variant by variant")


def curve_plot(
    curves: Sequence[Curve], sweep: Sweep, name: str, x_label: str = "step", *, wide: bool = False
) -> Markup:
    """One line per variant, with the range of its seeds as a band."""
    colour, titles = colours(sweep), {variant.name: variant.title for variant in sweep.variants}
    width, height = (760, 300) if wide else (330, 236)
    values = np.concatenate([np.concatenate([curve.low, curve.high]) for curve in curves])
    steps = np.concatenate([curve.steps for curve in curves])
    low, high = float(steps.min()), float(steps.max())
    x = svg.Scale(low, high if high > low else low + 1, 52, width - 12)
    y = svg.Scale(*svg.padded(values), height - 40, 10)
    parts = svg.axes(x, y, x_label, 8 if wide else 5)
    for curve in curves:
        xs, index = [x(step) for step in curve.steps], colour[curve.variant]
        if np.any(curve.high > curve.low):
            parts.append(svg.band(xs, [y(v) for v in curve.low], [y(v) for v in curve.high], svg.colour(index)))
    for curve in curves:
        xs, ys, index = [x(step) for step in curve.steps], [y(v) for v in curve.mean], colour[curve.variant]
        title = f"{titles[curve.variant]}: {curve.mean[-1]:.4g} at {x_label} {curve.steps[-1]:g}"
        parts.append(svg.path(xs, ys, svg.colour(index), svg.dash(index), title))
        if len(xs) <= 12:
            parts += [svg.dot(px, py, 2.5, svg.colour(index)) for px, py in zip(xs, ys)]
    return svg.image(width, height, parts, f"{name} over {x_label}, one line per variant")


def axis_plot(table: Table) -> Markup:
    """The first measure over the setting in the sweep's `axis`, one line per objective.

    Empty without an axis, or if fewer than two variants have a number for it.
    """
    axis, measure = table.sweep.axis, table.measures[0]
    groups: dict[str, list[tuple[float, float, float, float]]] = {}
    for row in table.done:
        settings = dict(table.sweep.overrides) | dict(row.variant.overrides)
        value = settings.pop(axis, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            figure = row.figures[measure]
            name = str(settings.get("pretraining.objective", "")) or measure
            groups.setdefault(name, []).append((float(value), figure.mean, figure.lowest, figure.highest))
    if sum(map(len, groups.values())) < 2:
        return Markup("")
    width, height = 760, 320
    points = np.array([point for group in groups.values() for point in group])
    x = svg.Scale(*svg.padded(points[:, 0], 0.03), 56, width - 120)
    y = svg.Scale(*svg.padded(points[:, 1:], 0.1), height - 40, 10)
    parts = svg.axes(x, y, axis.split(".")[-1].replace("_", " "), 8)
    for i, (name, group) in enumerate(groups.items()):
        steps, means, lows, highs = (list(column) for column in zip(*sorted(group)))
        xs, ys = [x(step) for step in steps], [y(value) for value in means]
        if lows != highs:
            parts.append(svg.band(xs, [y(v) for v in lows], [y(v) for v in highs], svg.colour(i)))
        parts.append(svg.path(xs, ys, svg.colour(i), svg.dash(i), name))
        parts += [
            svg.dot(px, py, 4, svg.colour(i), f"{name}, {s:g}: {m:.3f}") for px, py, s, m in zip(xs, ys, steps, means)
        ]
        parts.append(svg.text(xs[-1] + 8, ys[-1] + 4, shortened(name, 16), kind="name"))
    return svg.image(width, height, parts, f"{measure} over {axis}")


def shortened(label: str, limit: int = 28) -> str:
    return label if len(label) <= limit else label[: limit - 1] + "…"
