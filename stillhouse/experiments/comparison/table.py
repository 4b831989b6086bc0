"""The comparison's figures: one row per variant, averaged over seeds, tested against the baseline over queries.

Shapes: S seeds, Q queries, M measures, C variants other than the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stillhouse.core.errors import InputError
from stillhouse.evaluation.figures import Measured, comparisons, intervals, stable
from stillhouse.evaluation.samples import Samples
from stillhouse.evaluation.significance import Comparison
from stillhouse.experiments.comparison.outcomes import Outcome
from stillhouse.experiments.comparison.sweep import Sweep, Variant


@dataclass(frozen=True)
class Figure:
    """A measure of one variant: the mean over seeds and queries, and its spread.

    `deviation` is the sample standard deviation of the seeds' means, None for a single seed; `lowest` and `highest` are
    the extreme seeds; `low` and `high` are the 95 % bootstrap interval over queries, averaged over seeds.
    """

    mean: float
    deviation: float | None
    lowest: float
    highest: float
    low: float
    high: float
    against: Comparison | None = None


@dataclass(frozen=True)
class Row:
    """One variant. `figures` by measure; empty if every seed failed. `losses` are the sweep's, averaged over seeds."""

    variant: Variant
    seeds: tuple[int, ...]
    figures: Mapping[str, Figure]
    dev: Mapping[str, float]
    heldout_loss: float | None
    steps: int
    losses: Mapping[str, float]
    failures: Mapping[int, str]


@dataclass(frozen=True)
class Table:
    """A whole comparison. `references` are systems outside the sweep: {system: {measure: mean}}.

    `values` holds the seed-averaged per-query values of every variant that has a result.
    """

    sweep: Sweep
    rows: tuple[Row, ...]
    measures: tuple[str, ...]
    queries: int
    dev_queries: int
    references: Mapping[str, Mapping[str, float]]
    values: Mapping[str, pd.DataFrame]
    samples: Samples
    synthetic: bool = False

    @property
    def kind(self) -> str:
        """The word before "test queries" wherever they are counted."""
        return "SYNTHETIC " if self.synthetic else ""

    @property
    def done(self) -> list[Row]:
        return [row for row in self.rows if row.figures]

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.variant.name == name)

    @property
    def by_dev(self) -> bool:
        """Whether the first measure is known on dev."""
        return all(self.measures[0] in row.dev for row in self.done)

    @property
    def best(self) -> Row:
        """The row that is best by the first measure on dev, or on test if dev lacks it; the first of equal ones."""
        first = self.measures[0]
        return max(self.done, key=lambda row: row.dev[first] if self.by_dev else row.figures[first].mean)


def make_table(
    sweep: Sweep,
    outcomes: Sequence[Outcome],
    references: Mapping[str, pd.DataFrame],
    samples: Samples,
    *,
    synthetic: bool = False,
) -> Table:
    """Compute averages, spreads and tests. `references` maps a system to its per-query test values.

    `synthetic` marks test queries that were made from the corpus, so that all outputs can say so.

    Raises `InputError` if no run has a result, or if variants were measured on different queries.
    """
    by_variant = {variant.name: [o for o in outcomes if o.variant == variant.name] for variant in sweep.variants}
    finished = {name: [o for o in found if not o.failure] for name, found in by_variant.items()}
    finished = {name: found for name, found in finished.items() if found}
    if not finished:
        raise InputError(f"no run of sweep {sweep.name} finished; the lines above say why")
    first = next(iter(finished.values()))[0]
    # A split without answers, say, has no values of their measures.
    measures = tuple(str(name) for name in first.test.dropna(axis="columns", how="all"))
    values = {name: seed_average(found, list(measures)) for name, found in finished.items()}
    for name, frame in values.items():
        if not frame.index.equals(first.test.index):
            raise InputError(
                f"variant {name} was measured on other queries than {first.variant}; a sweep compares on one corpus, "
                "so leave out settings of ingest, or run it as a separate sweep"
            )
    # The statistics of an evaluation, with the variants as its systems.
    measured = Measured("test", {}, values)
    bounds = intervals(measured, samples)
    pairs = [(name, sweep.baseline) for name in values if name != sweep.baseline] if sweep.baseline in values else []
    tests = {name: found for (name, _), found in comparisons(measured, samples, pairs).items()}
    rows = []
    for variant in sweep.variants:
        found = finished.get(variant.name, [])
        figures = {}
        for measure in measures if found else ():
            means_S = np.array([float(o.test[measure].mean()) for o in found])
            figures[measure] = Figure(
                mean=stable(means_S.mean()),
                deviation=stable(means_S.std(ddof=1)) if len(means_S) > 1 else None,
                lowest=stable(means_S.min()),
                highest=stable(means_S.max()),
                low=bounds[variant.name][measure][0],
                high=bounds[variant.name][measure][1],
                against=tests.get(variant.name, {}).get(measure),
            )
        with_dev = [o for o in found if len(o.dev)]
        on_dev = [m for m in measures if with_dev and all(o.dev[m].notna().any() for o in with_dev)]
        dev = {m: stable(float(np.mean([o.dev[m].mean() for o in with_dev]))) for m in on_dev}
        losses = {name: stable(float(np.mean([o.losses[name] for o in found]))) for name in _loss_names(found)}
        failures = {o.seed: o.failure for o in by_variant[variant.name] if o.failure}
        seeds, steps = tuple(o.seed for o in found), max((o.steps for o in found), default=0)
        rows.append(Row(variant, seeds, figures, dev, _heldout(found), steps, losses, failures))
    means = {
        system: {m: stable(frame[m].mean()) for m in measures if m in frame} for system, frame in references.items()
    }
    return Table(sweep, tuple(rows), measures, len(first.test), len(first.dev), means, values, samples, synthetic)


def seed_average(outcomes: Sequence[Outcome], measures: list[str]) -> pd.DataFrame:
    """The values of test queries averaged over the seeds, which must have the same queries in the same order."""
    frames = [outcome.test for outcome in outcomes]
    for outcome, frame in zip(outcomes, frames):
        if not frame.index.equals(frames[0].index):
            raise InputError(
                f"variant {outcome.variant} was measured on other queries with seed {outcome.seed} than with seed "
                f"{outcomes[0].seed}; remove its folder and run the comparison again"
            )
    values_SQM = np.stack([frame[measures].to_numpy() for frame in frames])
    return pd.DataFrame(values_SQM.mean(axis=0), index=frames[0].index, columns=measures)


def _heldout(outcomes: Sequence[Outcome]) -> float | None:
    """The lowest held-out loss, averaged over seeds; None without pre-training."""
    found = [o.signals.loc[o.signals["signal"] == "heldout_loss", "value"] for o in outcomes]
    lowest = [float(values.min()) for values in found if len(values)]
    return stable(float(np.mean(lowest))) if lowest else None


def _loss_names(outcomes: Sequence[Outcome]) -> list[str]:
    """The losses that every seed of a variant has; none if nothing is trained."""
    return [name for name in (outcomes[0].losses if outcomes else ()) if all(name in o.losses for o in outcomes)]
