"""Step `ingest`: reads a source of passages, queries and qrels into Parquet."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `ingest`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "ingest",
    "reads a source of passages, queries and qrels into Parquet",
    Config,
    inputs=(),
    outputs=(
        Port("corpus", "the corpus folder"),
    ),
    run=run,
)
