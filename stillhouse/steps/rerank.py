"""Step `rerank`: re-orders a run's best passages with the cross-encoder."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `rerank`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "rerank",
    "re-orders a run's best passages with the cross-encoder",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("candidates", "the run to re-order"),
        Port("reranker", "the cross-encoder", kind="model"),
    ),
    outputs=(
        Port("run", "the re-ordered passages"),
    ),
    run=run,
)
