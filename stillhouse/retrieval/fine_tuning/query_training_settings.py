"""Settings of training the query tower alone. No torch here: step modules read them to declare their flags."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import same_setting, setting
from stillhouse.retrieval.settings import RANKINGS, DevRankingConfig
from stillhouse.training.settings import TrainingConfig, patience_setting


@dataclass(frozen=True, kw_only=True)
class QueryTrainingConfig(TrainingConfig):
    """The loss over an index, how the kept step is chosen, and the negatives drawn for a teacher."""

    temperature: float = setting(0.02, "divide scores by this", minimum=1e-6)
    passages_at_once: int = setting(
        262_144,
        "passages used as negatives in a step: the whole index if it is no larger, else a new sample of this size in "
        "each step; hard negatives are added",
        minimum=1,
    )
    negatives_per_query: int = setting(15, "only with negatives: hard negatives drawn per query and epoch", minimum=0)
    negatives_depth: int = setting(200, "draw negatives from this many of the highest-ranked ones", minimum=1)
    alpha: float = setting(0.2, "only with a teacher: weight of the loss over the index", minimum=0)
    metric_for_best_model: str = setting(
        "ndcg10",
        "keep the step that ranks dev queries best in the whole index, by rr10 or ndcg10; keep the start if no step "
        "is better",
        choices=tuple(RANKINGS),
    )
    patience: int | None = patience_setting()
    eval_queries: int | None = same_setting(DevRankingConfig, "eval_queries")
