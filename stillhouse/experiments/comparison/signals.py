"""Signals over training steps, averaged over seeds: one curve per variant, with the range of the seeds as a band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from stillhouse.experiments.comparison.outcomes import Outcome
from stillhouse.experiments.comparison.sweep import Sweep


@dataclass(frozen=True)
class Curve:
    """A signal of one variant: at every step the mean, lowest and highest seed; float64, all of equal length."""

    variant: str
    steps: np.ndarray
    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray


def signal_curves(sweep: Sweep, outcomes: Sequence[Outcome]) -> dict[str, list[Curve]]:
    """{signal: curves in the order of the variants}, held-out loss first."""
    names = dict.fromkeys(str(name) for outcome in outcomes for name in outcome.signals["signal"].unique())
    return {
        name: _curves(sweep, [(of.variant, of.signals[of.signals["signal"] == name]) for of in outcomes])
        for name in names
    }


def coverage_curves(sweep: Sweep, outcomes: Sequence[Outcome]) -> list[Curve]:
    """Token coverage over k, one curve per variant (BoW Figures 2 and 4); `steps` holds k."""
    columns = {"k": "step", "coverage": "value"}
    return _curves(sweep, [(of.variant, of.coverage.rename(columns=columns)) for of in outcomes])


def _curves(sweep: Sweep, frames: Sequence[tuple[str, pd.DataFrame]]) -> list[Curve]:
    """The curve of each variant over its `frames`, one per seed; none of a variant without values."""
    curves = []
    for variant in sweep.variants:
        own = [frame for name, frame in frames if name == variant.name and len(frame)]
        if own:
            table = pd.concat(own).groupby("step")["value"].agg(["mean", "min", "max"]).sort_index().astype(np.float64)
            curves.append(Curve(variant.name, table.index.to_numpy(dtype=np.float64), *table.to_numpy().T))
    return curves
