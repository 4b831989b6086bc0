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
    names: dict[str, None] = {}
    for outcome in outcomes:
        names |= dict.fromkeys(str(name) for name in outcome.signals["signal"].unique())
    return {name: curves for name in names if (curves := _curves(sweep, outcomes, name))}


def coverage_curves(sweep: Sweep, outcomes: Sequence[Outcome]) -> list[Curve]:
    """Token coverage over k, one curve per variant (BoW Figures 2 and 4); `steps` holds k."""
    curves = []
    for variant in sweep.variants:
        found = [o.coverage for o in outcomes if o.variant == variant.name and len(o.coverage)]
        if found:
            frames = [frame.rename(columns={"k": "step", "coverage": "value"}) for frame in found]
            curves.append(_over_seeds(variant.name, frames))
    return curves


def _curves(sweep: Sweep, outcomes: Sequence[Outcome], signal: str) -> list[Curve]:
    curves = []
    for variant in sweep.variants:
        found = [o.signals[o.signals["signal"] == signal] for o in outcomes if o.variant == variant.name]
        frames = [frame[["step", "value"]] for frame in found if len(frame)]
        if frames:
            curves.append(_over_seeds(variant.name, frames))
    return curves


def _over_seeds(variant: str, frames: Sequence[pd.DataFrame]) -> Curve:
    table = pd.concat(frames).groupby("step")["value"].agg(["mean", "min", "max"]).sort_index()
    steps = table.index.to_numpy(dtype=np.float64)
    return Curve(variant, steps, *(table[name].to_numpy(dtype=np.float64) for name in ("mean", "min", "max")))
