"""Step `index`: encodes every passage and builds a faiss index."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `index`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "index",
    "encodes every passage and builds a faiss index",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        Port("retriever", "the bi-encoder", kind="model"),
        Port("validation", "the verdict that lets the run go on", optional=True),
    ),
    outputs=(
        Port("index", "the faiss index and its ids"),
    ),
    run=run,
)
