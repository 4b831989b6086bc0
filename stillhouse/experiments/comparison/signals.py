"""Signals over training steps, averaged over seeds: one curve per variant, with the range of the seeds as a band."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

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
    return {name: _curves(sweep, outcomes, partial(_signal, name)) for name in names}


def coverage_curves(sweep: Sweep, outcomes: Sequence[Outcome]) -> list[Curve]:
    """Token coverage over k, one curve per variant (BoW Figures 2 and 4); `steps` holds k."""
    return _curves(sweep, outcomes, lambda o: o.coverage.rename(columns={"k": "step", "coverage": "value"}))


def _signal(name: str, outcome: Outcome) -> pd.DataFrame:
    return outcome.signals[outcome.signals["signal"] == name]


def _curves(sweep: Sweep, outcomes: Sequence[Outcome], frame_of: Callable[[Outcome], pd.DataFrame]) -> list[Curve]:
    curves = []
    for variant in sweep.variants:
        frames = [frame_of(outcome) for outcome in outcomes if outcome.variant == variant.name]
        if any(map(len, frames)):
            curves.append(_over_seeds(variant.name, [frame for frame in frames if len(frame)]))
    return curves


def _over_seeds(variant: str, frames: Sequence[pd.DataFrame]) -> Curve:
    table = pd.concat(frames).groupby("step")["value"].agg(["mean", "min", "max"]).sort_index()
    steps = table.index.to_numpy(dtype=np.float64)
    return Curve(variant, steps, *(table[name].to_numpy(dtype=np.float64) for name in ("mean", "min", "max")))
