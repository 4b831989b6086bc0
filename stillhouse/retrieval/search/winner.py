"""The winner of a run: among retrievers, each alone and with BM25, the one that the dev queries show to be best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillhouse.retrieval.search.hybrid import Fusion

LOG_LIKELIHOOD, RR10 = "log_likelihood", "rr10"
METRICS = (LOG_LIKELIHOOD, RR10)
"""What a winner may be chosen by."""
SHOWN = {LOG_LIKELIHOOD: "log-likelihood", RR10: "RR@10"}


@dataclass(frozen=True)
class Contender:
    """A retriever, alone or fused with BM25, and how well it ranks each dev query, float64 [Q].

    `log_likelihoods` are those of `likelihood.log_likelihoods`, over the same candidates for all contenders.
    """

    retriever: str
    fusion: Fusion
    reciprocal_ranks: NDArray[np.float64]
    log_likelihoods: NDArray[np.float64]

    @property
    def name(self) -> str:
        return self.retriever if self.fusion.method == "dense" else f"{self.retriever} + BM25"

    def values(self, metric: str) -> NDArray[np.float64]:
        """What a choice by `metric`, one of `METRICS`, compares."""
        return self.log_likelihoods if metric == LOG_LIKELIHOOD else self.reciprocal_ranks


def choose_winner(contenders: Iterable[Contender], metric: str, standard_errors: float) -> Contender:
    """The first contender, replaced by each later one that is better than what stands so far.

    Better means: its mean of `metric` leads by more than `standard_errors` standard errors of the paired difference.
    What comes first therefore stays unless dev shows something to be better, so simple and cheap systems belong in
    front.
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
    """A line that names the winner and lays the others beside it."""
    figures = ", ".join(
        f"{name} {contender.reciprocal_ranks.mean():.3f} ({contender.log_likelihoods.mean():.3f})"
        for name, contender in contenders.items()
    )
    queries = len(winner.reciprocal_ranks)
    first = next(iter(contenders))
    found = "nothing was shown to be better than the start" if winner.name == first else f"the winner is {winner.name}"
    formula = "" if winner.fusion.method == "dense" else f" ({winner.fusion})"
    return f"{found}{formula}, by {SHOWN[metric]}; RR@10 (log-likelihood) of {queries} dev queries: {figures}"
