"""The winner of a run: the retriever, alone or with BM25, that is best on the dev queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillhouse.retrieval.search.hybrid import Fusion

LOG_LIKELIHOOD, RR10 = "log_likelihood", "rr10"
METRICS = (LOG_LIKELIHOOD, RR10)
"""The metrics that can choose a winner."""
SHOWN = {LOG_LIKELIHOOD: "log-likelihood", RR10: "RR@10"}


@dataclass(frozen=True)
class Contender:
    """A retriever, alone or fused with BM25, and how well it ranks each dev query, float64 [Q].

    `log_likelihoods` come from `likelihood.log_likelihoods`, over the same candidates for all contenders.
    """

    retriever: str
    fusion: Fusion
    reciprocal_ranks: NDArray[np.float64]
    log_likelihoods: NDArray[np.float64]

    @property
    def name(self) -> str:
        return self.retriever if self.fusion.method == "dense" else f"{self.retriever} + BM25"

    def values(self, metric: str) -> NDArray[np.float64]:
        """The values that a choice by `metric`, one of `METRICS`, compares."""
        return self.log_likelihoods if metric == LOG_LIKELIHOOD else self.reciprocal_ranks


def choose_winner(contenders: Iterable[Contender], metric: str, standard_errors: float) -> Contender:
    """Start with the first contender and replace it with each later one that is better than the current winner.

    Better means that its mean of `metric` leads by more than `standard_errors` standard errors of the paired
    difference. An early contender stays unless dev shows another to be better, so list simple and cheap systems first.
    """
    contenders = iter(contenders)
    winner = next(contenders)
    for later in contenders:
        difference_Q = later.values(metric) - winner.values(metric)
        lead = float(difference_Q.mean())
        spread = float(difference_Q.std(ddof=1)) if len(difference_Q) > 1 else 0.0
        if lead > standard_errors * spread / np.sqrt(len(difference_Q)):
            winner = later
    return winner


def describe_winner(winner: Contender, contenders: Mapping[str, Contender], metric: str) -> str:
    """A line that names the winner and gives the figures of all contenders."""
    figures = ", ".join(
        f"{name} {contender.reciprocal_ranks.mean():.3f} ({contender.log_likelihoods.mean():.3f})"
        for name, contender in contenders.items()
    )
    queries = len(winner.reciprocal_ranks)
    first = next(iter(contenders))
    found = "nothing was shown to be better than the start" if winner.name == first else f"the winner is {winner.name}"
    formula = "" if winner.fusion.method == "dense" else f" ({winner.fusion})"
    return f"{found}{formula}, by {SHOWN[metric]}; RR@10 (log-likelihood) of {queries} dev queries: {figures}"
