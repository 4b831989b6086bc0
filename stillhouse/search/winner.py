"""The winner of a run: the retriever, alone or fused with other rankings, that is best on the dev queries.

RR@10 changes only if a right answer changes its rank, so two systems differ on a few of a hundred queries and chance
decides between them. The log-likelihood, how likely a system's scores make the right answers, measures how far the
right answer is ahead or behind in every query. On repeatedly drawn dev queries it chooses a better system
(docs/findings.md).

Shape suffixes: Q queries, P right answers of a query, K candidates of a system, U candidates of all systems.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stillhouse.evaluation.rankings import Rows, first_kept, repeated
from stillhouse.search.fusion import fit_weights
from stillhouse.search.hybrid import Fusion

LOG_LIKELIHOOD, RR10 = "log_likelihood", "rr10"
METRICS = (LOG_LIKELIHOOD, RR10)
"""The metrics that can choose a winner."""
SHOWN = {LOG_LIKELIHOOD: "log-likelihood", RR10: "RR@10"}


@dataclass(frozen=True)
class Contender:
    """A retriever, alone or fused with other rankings, and how well it ranks each dev query, float64 [Q].

    `log_likelihoods` come from the function of this name, over the same candidates for all contenders.
    """

    retriever: str
    fusion: Fusion
    reciprocal_ranks: NDArray[np.float64]
    log_likelihoods: NDArray[np.float64]

    @property
    def name(self) -> str:
        return contender_name(self.retriever, self.fusion.method != "dense", bool(self.fusion.late))

    def values(self, metric: str) -> NDArray[np.float64]:
        """The values that a choice by `metric`, one of `METRICS`, compares."""
        return self.log_likelihoods if metric == LOG_LIKELIHOOD else self.reciprocal_ranks


def contender_name(retriever: str, with_bm25: bool, late: bool = False) -> str:
    return retriever + " + BM25" * with_bm25 + " + late interaction" * late


def partners_of(name: str) -> list[str]:
    """What ranks with the retriever in a contender's name: nothing, "BM25", or also "late interaction"."""
    return name.split(" + ")[1:]


def choose_winner(contenders: Iterable[Contender], metric: str, standard_errors: float) -> Contender:
    """Start with the first contender and replace it with every later one that beats the current winner.

    A later retriever must also beat every form of the first one. To beat means that the mean of `metric` leads by more
    than `standard_errors` standard errors of the paired difference; a single query has none, and shows nothing. An
    early contender stays unless dev shows another to be better, so list simple and cheap systems first.
    """

    def beats(later: Contender, than: Contender) -> bool:
        difference_Q = later.values(metric) - than.values(metric)
        spread = difference_Q.std(ddof=1) if len(difference_Q) > 1 else math.inf
        least = standard_errors * spread / math.sqrt(len(difference_Q)) if standard_errors else 0.0
        return float(difference_Q.mean()) > least

    first, *others = contenders
    winner, base = first, [first]
    for later in others:
        if all(beats(later, than) for than in (winner, *base)):
            winner = later
        if later.retriever == first.retriever:
            base.append(later)
    return winner


def describe_winner(winner: Contender, contenders: Mapping[str, Contender], metric: str) -> str:
    """A line that names the winner and gives the figures of all contenders."""
    figures = ", ".join(
        f"{name} {contender.reciprocal_ranks.mean():.3f} ({contender.log_likelihoods.mean():.3f})"
        for name, contender in contenders.items()
    )
    queries = len(winner.reciprocal_ranks)
    first = next(iter(contenders))
    none = f"nothing was shown to be better than {'the base model' if first == 'zero_shot' else first}"
    found = none if winner.name == first else f"the winner is {winner.name}"
    formula = "" if winner.fusion.method == "dense" else f" ({winner.fusion})"
    return f"{found}{formula}, by {SHOWN[metric]}; RR@10 (log-likelihood) of {queries} dev queries: {figures}"


def choice_facts(facts: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the report says of the winner, from the facts in the manifest that `select-best` wrote.

    None for the manifest of another step.
    """
    if not {"winner", "queries"} <= facts.keys():
        return None
    partners = partners_of(facts["winner"])
    return {
        "retriever": facts["retriever"],
        "partners": partners,
        "formula": facts["fusion"] if partners else "",
        "chosen_by": facts["chosen_by"],
        "queries": facts["queries"],
        "made_queries": facts.get("made_queries", 0),
        "systems": len(facts[f"dev_{facts['chosen_by']}"]),
    }


def common_candidates(brought: Sequence[Rows], answers_QP: Rows) -> Rows:
    """The candidates of all systems and the right answers, int32 [Q, U], each once per query and padded with -1.

    Likelihoods are compared over the same candidates. A right answer is included, with its score, even if a system
    did not find it.
    """
    rows_QU = np.concatenate([*brought, answers_QP], axis=1)
    kept_QU = (rows_QU >= 0) & ~repeated(rows_QU)
    return first_kept(rows_QU, kept_QU, int(kept_QU.sum(axis=1).max(initial=0)))


def log_likelihoods(
    scores_QU: NDArray[np.floating], judged_QU: NDArray[np.bool_], right_QU: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """log softmax of the best right answer among itself and the wrong ones, float64 [Q]; at most 0.

    Scores are multiplied by the factor that makes the right answers most likely (`fit_weights`), so systems with
    different score scales are comparable. `judged_QU` marks the candidates that are right or wrong. The value is 0 for
    a query without a right or without a wrong candidate.
    """
    right_QU, wrong_QU = right_QU & judged_QU, judged_QU & ~right_QU
    try:
        [factor] = fit_weights(scores_QU[:, :, None], judged_QU, right_QU)
    except ValueError:
        return np.zeros(len(scores_QU))
    scaled_QU = np.asarray(scores_QU, dtype=np.float64) * factor
    best_Q = np.where(right_QU, scaled_QU, -np.inf).max(axis=1)
    useful_Q = right_QU.any(axis=1) & wrong_QU.any(axis=1)
    found_Q = np.zeros(len(scores_QU))
    gaps_QU = np.where(wrong_QU, scaled_QU, -np.inf)[useful_Q] - best_Q[useful_Q, None]
    found_Q[useful_Q] = -np.logaddexp.reduce(np.concatenate([gaps_QU, np.zeros((len(gaps_QU), 1))], axis=1), axis=1)
    return found_Q
