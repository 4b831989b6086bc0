"""Settings of training the query tower alone. No torch here: step modules read them to declare their flags."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.retrieval.settings import RANKINGS
from stillhouse.training.settings import TrainingConfig, patience_setting


@dataclass(frozen=True, kw_only=True)
class QueryTrainingConfig(TrainingConfig):
    """The loss over an index, what chooses the step that is kept, and what is drawn for a teacher."""

    temperature: float = setting(0.02, "scores are divided by it", minimum=1e-6)
    passages_at_once: int = setting(
        262_144,
        "passages that are negatives in a step: the whole index where it holds no more, else as many of it, drawn anew "
        "in each step, beside the hard negatives that are given",
        minimum=1,
    )
    negatives_per_query: int = setting(
        15, "with negatives alone: hard negatives drawn for a query each time it is seen", minimum=0
    )
    negatives_depth: int = setting(200, "draw them from this many of the best", minimum=1)
    alpha: float = setting(
        0.2, "with a teacher alone: weight of the loss over the index beside the teacher's", minimum=0
    )
    metric_for_best_model: str = setting(
        "ndcg10",
        "what chooses the step that is kept, of dev queries ranked in the whole index: rr10, ndcg10; the start is kept "
        "where no step ranks them better",
        choices=tuple(RANKINGS),
    )
    patience: int | None = patience_setting()
    eval_queries: int | None = setting(
        None, "measure on at most this many dev queries, a sample drawn from the seed; null = all", minimum=1
    )
