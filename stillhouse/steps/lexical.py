"""Step `lexical`: retrieves with BM25: a run, and negatives for the first retriever."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `lexical`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "lexical",
    "retrieves with BM25: a run, and negatives for the first retriever",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("validation", "the verdict that lets the run go on", optional=True),
    ),
    outputs=(
        Port("run", "BM25's run"),
        Port("negatives", "BM25's hard negatives"),
    ),
    run=run,
)
