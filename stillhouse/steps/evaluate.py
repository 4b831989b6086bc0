"""Step `evaluate`: measures every system, tests the differences and writes one report."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.evaluation.systems import SYSTEMS, TRAININGS
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `evaluate`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "evaluate",
    "measures every system, tests the differences and writes one report",
    Config,
    inputs=(
        Port("corpus", "the corpus folder"),
        *(Port(name, f"run of {text}", optional=True) for name, text in SYSTEMS.items()),
        *(Port(f"{name}_curves", f"loss curves: {text}", optional=True) for name, text in TRAININGS.items()),
    ),
    outputs=(Port("evaluation", "metrics, significance and the report"),),
    run=run,
)
