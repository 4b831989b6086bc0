"""Step `train-reranker`: trains a cross-encoder with the listwise loss (001 eq. 4)."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `train-reranker`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "train-reranker",
    "trains a cross-encoder with the listwise loss (001 eq. 4)",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("negatives", "hard negatives"),
        Port("init", "the model to start from", kind="model"),
    ),
    outputs=(
        Port("reranker", "the cross-encoder", kind="model"),
        Port("curves", "training and held-out loss"),
    ),
    run=run,
)
