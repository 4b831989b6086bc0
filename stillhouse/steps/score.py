"""Step `score`: scores positives and negatives with the cross-encoder, for distillation."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `score`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "score",
    "scores positives and negatives with the cross-encoder, for distillation",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("negatives", "hard negatives"),
        Port("reranker", "the cross-encoder", kind="model"),
    ),
    outputs=(
        Port("teacher", "the scores"),
    ),
    run=run,
)
