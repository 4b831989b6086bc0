"""Step `mine`: takes a retriever's best wrong passages as hard negatives."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `mine`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "mine",
    "takes a retriever's best wrong passages as hard negatives",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("retriever", "the bi-encoder", kind="model"),
        Port("index", "its index of the corpus"),
    ),
    outputs=(
        Port("negatives", "hard negatives"),
    ),
    run=run,
)
