"""Step `validate`: checks the corpus with Great Expectations and stops the run when it breaks a threshold."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `validate`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "validate",
    "checks the corpus with Great Expectations and stops the run when it breaks a threshold",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
    ),
    outputs=(
        Port("validation", "the report and the verdict"),
    ),
    run=run,
)
