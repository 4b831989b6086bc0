"""When a challenger is refused. No NumPy here: the step `compare-release` reads it to declare its flags."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.core.config import setting
from stillhouse.evaluation.samples import Samples


@dataclass(frozen=True, kw_only=True)
class Rule(Samples):
    """When a challenger is refused."""

    measure: str = setting("RR@10", "the measure that decides, by its name in ir_measures")
    alpha: float = setting(0.05, "refuse if worse with a p-value of at most this", minimum=0, maximum=1)
    most_loss: float = setting(
        0.02,
        "refuse if the mean falls by more than this, significant or not; for a new index of one retriever, its recall",
        minimum=0,
        maximum=1,
    )
    least_queries: int = setting(1, "refuse if there are fewer test queries", minimum=1)
