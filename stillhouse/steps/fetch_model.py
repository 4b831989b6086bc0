"""Step `fetch-model`: fetches the model that training starts from and freezes it as a folder."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `fetch-model`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "fetch-model",
    "fetches the model that training starts from and freezes it as a folder",
    Config,
    inputs=(),
    outputs=(
        Port("encoder", "the starting model", kind="model"),
    ),
    run=run,
)
