"""What the trainings of the bi-encoder and the cross-encoder share: samplers of both splits, and the loop over them.

Shapes: B examples of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import numpy as np
from torch import Tensor, nn

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.monitoring.activity import doing
from stillhouse.retrieval.groups import GroupSampler
from stillhouse.retrieval.negatives import Negatives
from stillhouse.retrieval.teacher import Teacher
from stillhouse.training.ahead import Ahead
from stillhouse.training.batches import chunks, epoch_batches, steps_for, times_seen
from stillhouse.training.curves import CurveRow
from stillhouse.training.loop import train
from stillhouse.training.settings import TrainingConfig

Drawn = TypeVar("Drawn")
Draw = Callable[[str, np.ndarray, np.ndarray], Drawn]
"""`draw(split, examples_B, times_B)`: all that a loss needs of the examples but the model, in another thread perhaps.

`times_B` says how often each was seen before.
"""
GroupLoss = Callable[[str, Drawn], Tensor | Iterable[Tensor]]
"""`loss(split, drawn)`, the mean over the examples; several losses add up to it, each to be back-propagated before the
next is made."""


@doing("reading the hard negatives")
def open_samplers(
    corpus: Corpus,
    negatives: Negatives,
    per_query: int,
    depth: int,
    seed: int,
    context: Context,
    teacher: Teacher | None = None,
) -> dict[str, GroupSampler]:
    """A sampler for train and one for dev; where there is a teacher they draw what it scored alone.

    Raises `InputError` as `GroupSampler`.
    """
    scores_QD = teacher.negative_scores_QD if teacher else None
    samplers = {
        split: GroupSampler(corpus, negatives, split, per_query, depth, seed, scores_QD) for split in ("train", "dev")
    }
    for split, sampler in samplers.items():
        if sampler.without_negatives():
            context.log(f"{sampler.without_negatives()} {split} queries have no hard negatives")
        if sampler.unscored():
            context.log(f"{sampler.unscored()} negatives of {split} queries have no teacher score and are not drawn")
    return samplers


def train_on_groups(
    model: nn.Module,
    samplers: Mapping[str, GroupSampler],
    draw: Draw[Drawn],
    loss: GroupLoss[Drawn],
    config: TrainingConfig,
    context: Context,
) -> list[CurveRow]:
    """Trains `model` in place on the train queries and returns its curves; dev queries give the held-out loss.

    A dev query is always seen as for the first time, so that every held-out loss is of the same groups.
    """
    count = len(samplers["train"])
    batch, times = epoch_batches(count, config.batch_size, config.seed), times_seen(count, config.batch_size)

    def heldout_loss() -> float:
        total = 0.0
        parts = chunks(len(samplers["dev"]), config.batch_size)
        for part in context.progress(parts, "held-out loss", unit="batch"):
            made = loss("dev", draw("dev", part, np.zeros_like(part)))
            total += len(part) * sum(float(value) for value in ([made] if isinstance(made, Tensor) else made))
        return total / len(samplers["dev"])

    steps = steps_for(count, config.batch_size, config.epochs, config.max_steps)
    with Ahead(lambda step: draw("train", batch(step), times(step)), steps) as drawn:
        return train(model, lambda step: loss("train", drawn(step)), heldout_loss, steps, config, context)
