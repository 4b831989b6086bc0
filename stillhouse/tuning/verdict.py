"""The result of a search in one sentence: the gain on dev over the default, and its uncertainty.

Shapes: Q dev questions, C finished trials besides the default.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stillhouse.evaluation.significance import bootstrap_intervals

if TYPE_CHECKING:
    from stillhouse.tuning.search import Finished

SAMPLES = 10_000
SEED = 42


@dataclass(frozen=True)
class Verdict:
    """The best finished trial besides the default. `p` accounts for choosing the best of all finished trials."""

    best: Finished
    difference: float
    low: float
    high: float
    p: float


def judge(default: Finished, others: Sequence[Finished]) -> Verdict | None:
    """Compare the best of the others with the default on the same questions; None if no other has finished."""
    if not others:
        return None
    best = max(others, key=lambda one: (one.figure.mean, -one.number))
    differences_QC = np.stack([one.figure.ranks_Q - default.figure.ranks_Q for one in others], axis=1)
    own_Q1 = (best.figure.ranks_Q - default.figure.ranks_Q)[:, None]
    (low,), (high,) = bootstrap_intervals(own_Q1, SAMPLES, SEED)
    return Verdict(best, float(own_Q1.mean()), float(low), float(high), best_of_p(differences_QC, SAMPLES, SEED))


def best_of_p(differences_QC: NDArray[np.float64], samples: int, seed: int) -> float:
    """The probability that the best of C settings that are no better than the default leads by at least this much.

    A question's differences change sign together, as if default and trials were swapped for it. p is the share of
    arrangements whose highest mean reaches the observed one, which is included (Westfall and Young's maximum).
    """
    rng = np.random.default_rng([seed, 2])
    reached = differences_QC.sum(axis=0).max() - 1e-9 * np.abs(differences_QC).sum()
    signs_SQ = 1.0 - 2.0 * rng.integers(2, size=(samples, len(differences_QC)), dtype=np.int8)
    hits = int(((signs_SQ @ differences_QC).max(axis=1) >= reached).sum())
    return (1 + hits) / (1 + samples)


def sentence(default: Finished, verdict: Verdict | None, tried: int, given_up: int) -> str:
    """The summary of a search. `tried` counts the trials besides the default; `given_up` of these stopped early."""
    trials = f"{tried} trial{'' if tried == 1 else 's'} besides the default, {given_up} of them stopped early"
    start = f"RR@10 {default.figure.mean:.4f} on the {len(default.figure.query_ids)} dev questions"
    if verdict is None:
        return f"No trial has finished ({trials}): the default has {start}; give the search more --minutes."
    other = verdict.best.figure.mean
    interval = f"{verdict.difference:+.4f} (95 % interval {verdict.low:+.4f} to {verdict.high:+.4f})"
    if verdict.difference <= 0:
        return (
            f"Nothing better was found in {trials}: the default has {start} and the best trial {other:.4f}, "
            f"{interval}; leave params.yaml unchanged."
        )
    return (
        f"Trial {verdict.best.number} is the best of {trials}: RR@10 {other:.4f}; the default has {start}, "
        f"{interval}; p = {verdict.p:.3f}, which accounts for choosing the best. It was chosen on these questions, so "
        "expect less on others, and measure it on the test questions once."
    )
