"""What a search found, in one sentence: by how much dev is better than with the default, and how certain that is.

Shapes: Q dev questions, C finished trials beside the default.
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
    """The best finished trial beside the default. `p` counts that it is the best of all that finished."""

    best: Finished
    difference: float
    low: float
    high: float
    p: float


def judge(default: Finished, others: Sequence[Finished]) -> Verdict | None:
    """The best of the others held against the default on the same questions; None where none has finished."""
    if not others:
        return None
    best = max(others, key=lambda one: (one.figure.mean, -one.number))
    differences_QC = np.stack([one.figure.ranks_Q - default.figure.ranks_Q for one in others], axis=1)
    own_Q1 = (best.figure.ranks_Q - default.figure.ranks_Q)[:, None]
    (low,), (high,) = bootstrap_intervals(own_Q1, SAMPLES, SEED)
    return Verdict(best, float(own_Q1.mean()), float(low), float(high), best_of_p(differences_QC, SAMPLES, SEED))


def best_of_p(differences_QC: NDArray[np.float64], samples: int, seed: int) -> float:
    """The chance that the best of C settings that are no better than the default leads by so much.

    A question's differences change their sign together, as if default and trials were exchanged in it; p is the share
    of arrangements whose highest mean reaches the observed one, which is counted too (Westfall and Young's maximum).
    """
    rng = np.random.default_rng([seed, 2])
    reached = differences_QC.sum(axis=0).max() - 1e-9 * np.abs(differences_QC).sum()
    signs_SQ = 1.0 - 2.0 * rng.integers(2, size=(samples, len(differences_QC)), dtype=np.int8)
    hits = int(((signs_SQ @ differences_QC).max(axis=1) >= reached).sum())
    return (1 + hits) / (1 + samples)


def sentence(default: Finished, verdict: Verdict | None, tried: int, given_up: int) -> str:
    """The end of a search. `tried` are the trials beside the default, `given_up` of these early."""
    trials = f"{tried} trial{'' if tried == 1 else 's'} beside the default, {given_up} of them given up early"
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
        f"Trial {verdict.best.number} is the best of {trials}: RR@10 {other:.4f} where the default has {start}, "
        f"{interval}; p = {verdict.p:.3f}, counting that it was chosen as the best. It was chosen by these questions, "
        "so expect less on others, and measure it on the test questions once."
    )
