"""Step `importance`: counts n-grams and scores every token by its average mutual information (003 eq. 7-8)."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `importance`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "importance",
    "counts n-grams and scores every token by its average mutual information (003 eq. 7-8)",
    Config,
    inputs=(
        Port("tokens", "the token arrays"),
    ),
    outputs=(
        Port("importance", "n-gram counts and one AMI value a token"),
    ),
    run=run,
)
