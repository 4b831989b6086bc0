"""Uncertainty of the figures: bootstrap intervals of means, paired tests between systems, Holm's correction.

Shapes: Q queries, V columns of per-query values (for example systems x measures), C columns of per-query differences,
B samples. All random draws come from the seed alone, and all columns share them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from stillhouse.evaluation.samples import Samples

SIGNIFICANT = 0.05
"""A difference is called significant if its p is smaller than this."""
DRAWN_AT_ONCE = 4_000_000  # random numbers held in memory, which limits a block of samples
AGAINST: Mapping[str, tuple[str, ...]] = {
    "distilled": ("bm25", "zero_shot", "retriever_1"),
    "retriever_1": ("zero_shot", "retriever_1_unpretrained"),
    "bm25": (),
    "zero_shot": (),
    "retriever_1_unpretrained": (),
    "retriever_2": (),
    "reranked": (),
    "best": ("bm25", "zero_shot"),
}
"""Baselines of the papers' systems, besides the previous one. Every comparison weakens the others."""
BASELINES = ("bm25", "zero_shot")
"""Baselines of any other system."""


@dataclass(frozen=True)
class Comparison:
    """A paired comparison of two systems in one measure; `difference` is the mean of system - baseline."""

    difference: float
    low: float
    high: float
    randomisation_p: float
    randomisation_p_holm: float

    def turned(self) -> Comparison:
        """The comparison of the baseline with the system."""
        return replace(self, difference=-self.difference, low=-self.high, high=-self.low)


def compared_pairs(systems: Iterable[str]) -> list[tuple[str, str]]:
    """(system, baseline) pairs: each system against the previous one, then against its baselines, without repeats.

    Systems of the papers have the baselines in `AGAINST`, all others have `BASELINES`.
    """
    given = list(systems)
    pairs = list(zip(given[1:], given[:-1]))
    known = [system for system in AGAINST if system in given]
    for system in known + [system for system in given if system not in AGAINST]:
        for baseline in AGAINST.get(system, BASELINES):
            if baseline in given and not {(system, baseline), (baseline, system)} & set(pairs):
                pairs.append((system, baseline))
    return pairs


def bootstrap_intervals(values_QV: np.ndarray, samples: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """95 % percentile bootstrap intervals of the column means, `(low_V, high_V)`; a sample redraws Q queries."""
    queries = len(values_QV)
    assert queries and samples, (queries, samples)
    rng = np.random.default_rng([seed, 0])
    blocks = []
    for size in _blocks(samples, queries):
        drawn_BQ = rng.integers(queries, size=(size, queries))
        drawn_BQ += np.arange(size)[:, None] * queries
        counts_BQ = np.bincount(drawn_BQ.ravel(), minlength=size * queries).reshape(size, queries)
        blocks.append(counts_BQ.astype(np.float64) @ values_QV / queries)
    low_V, high_V = np.quantile(np.concatenate(blocks), [0.025, 0.975], axis=0)
    return low_V, high_V


def sign_flip_p(differences_QC: np.ndarray, samples: int, seed: int) -> np.ndarray:
    """Two-sided paired randomisation test of each column's mean against 0.

    Under the null hypothesis the two systems of a pair can be swapped in any query, which flips the difference's sign.
    p is the share of random flips whose mean is at least as far from 0 as the observed one. The observed arrangement
    counts too, so p is never 0. Returns p_C, float64.
    """
    queries = len(differences_QC)
    rng = np.random.default_rng([seed, 1])
    observed_C = np.abs(differences_QC.sum(axis=0))
    # Rounding must not separate arrangements that are equal in exact arithmetic.
    reached_C = observed_C - 1e-9 * np.abs(differences_QC).sum(axis=0)
    hits_C = np.zeros(differences_QC.shape[1], dtype=np.int64)
    for size in _blocks(samples, queries):
        signs_BQ = 1.0 - 2.0 * rng.integers(2, size=(size, queries), dtype=np.int8)
        hits_C += (np.abs(signs_BQ @ differences_QC) >= reached_C).sum(axis=0)
    return (1 + hits_C) / (1 + samples)


def _blocks(samples: int, queries: int) -> Iterator[int]:
    """Sizes of blocks of samples that sum to `samples`."""
    size = max(1, DRAWN_AT_ONCE // queries)
    while samples > 0:
        yield min(size, samples)
        samples -= size


def holm(p: Sequence[float] | np.ndarray) -> np.ndarray:
    """Holm's step-down correction of one family of p-values, in the given order, at most 1."""
    p_C = np.asarray(p, dtype=np.float64)
    order = np.argsort(p_C, kind="stable")
    adjusted = np.maximum.accumulate(p_C[order] * np.arange(len(p_C), 0, -1))
    result = np.empty_like(p_C)
    result[order] = np.minimum(adjusted, 1.0)
    return result


def compare(differences_QC: np.ndarray, samples: Samples) -> list[Comparison]:
    """Compare C pairs of systems by their per-query differences in one measure; the C pairs are one Holm family."""
    low_C, high_C = bootstrap_intervals(differences_QC, samples.bootstrap_samples, samples.seed)
    flip_C = sign_flip_p(differences_QC, samples.randomisation_samples, samples.seed)
    columns = (differences_QC.mean(axis=0), low_C, high_C, flip_C, holm(flip_C))
    return [Comparison(*(float(value) for value in row)) for row in zip(*columns)]
