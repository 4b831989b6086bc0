"""Step `pretrain`: trains an encoder on unlabelled passages with one of the objectives."""

from __future__ import annotations

from dataclasses import dataclass

from stillhouse.config import setting
from stillhouse.context import Context
from stillhouse.steps.spec import Paths, Port, Report, Step


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings of `pretrain`."""

    seed: int = setting(42, "seed of every random choice", minimum=0)


def run(config: Config, inputs: Paths, outputs: Paths, context: Context) -> Report:
    raise RuntimeError("not written yet")


STEP = Step(
    "pretrain",
    "trains an encoder on unlabelled passages with one of the objectives",
    Config,
    inputs=(
        Port("tokens", "the token arrays"),
        Port("init", "the model to start from", kind="model"),
        Port("generator", "the masked language model that replaces tokens", kind="model", optional=True),
        Port("importance", "AMI values for importance-aware masking", optional=True),
    ),
    outputs=(
        Port("encoder", "the pre-trained encoder with its language-model head", kind="model"),
        Port("curves", "training and held-out loss"),
    ),
    run=run,
)
