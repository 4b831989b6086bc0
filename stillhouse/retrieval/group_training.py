"""What the trainings of the bi-encoder and the cross-encoder share: samplers of both splits, and the loop over them.

Shapes: B examples of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from torch import Tensor, nn

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.retrieval.groups import GroupSampler
from stillhouse.retrieval.negatives import Negatives
from stillhouse.training.batches import chunks, epoch_batches, steps_for
from stillhouse.training.curves import CurveRow
from stillhouse.training.loop import train
from stillhouse.training.settings import TrainingConfig

HELDOUT_STREAM = 2**31
"""Dev groups are drawn from streams of their own, the same ones for every held-out loss of a run."""

GroupLoss = Callable[[str, np.ndarray, int], Tensor]
"""`loss(split, examples_B, stream)`, the mean over the examples."""


def open_samplers(
    corpus: Corpus, negatives: Negatives, per_query: int, depth: int, seed: int, context: Context
) -> dict[str, GroupSampler]:
    """A sampler for train and one for dev. Raises `InputError` for a split without queries."""
    samplers = {split: GroupSampler(corpus, negatives, split, per_query, depth, seed) for split in ("train", "dev")}
    if samplers["train"].without_negatives():
        context.log(f"{samplers['train'].without_negatives()} train queries have no hard negatives")
    return samplers


def train_on_groups(
    model: nn.Module,
    samplers: Mapping[str, GroupSampler],
    loss: GroupLoss,
    config: TrainingConfig,
    context: Context,
) -> list[CurveRow]:
    """Trains `model` in place on the train queries and returns its curves; dev queries give the held-out loss."""
    count = len(samplers["train"])
    batch = epoch_batches(count, config.batch_size, config.seed)

    def heldout_loss() -> float:
        parts = chunks(len(samplers["dev"]), config.batch_size)
        total = sum(float(loss("dev", part, HELDOUT_STREAM + n)) * len(part) for n, part in enumerate(parts))
        return total / len(samplers["dev"])

    steps = steps_for(count, config.batch_size, config.epochs, config.max_steps)
    return train(model, lambda step: loss("train", batch(step), step), heldout_loss, steps, config, context)
