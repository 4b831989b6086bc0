"""Step `train-retriever`: trains a bi-encoder on positives and hard negatives, with a teacher's scores when given."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `train-retriever`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "train-retriever",
    "trains a bi-encoder on positives and hard negatives, with a teacher's scores when given",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("encoder", "the encoder to start from", kind="model"),
        Port("negatives", "hard negatives"),
        Port("teacher", "the re-ranker's scores: distillation", optional=True),
    ),
    outputs=(
        Port("retriever", "the bi-encoder", kind="model"),
        Port("curves", "training and held-out loss"),
    ),
    run=run,
)
