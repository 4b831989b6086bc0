"""Code shared by bi-encoder and cross-encoder training: the samplers of both splits and the loop over them.

Shapes: B examples of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from torch import Tensor, nn

from stillhouse.core.arrays import chunks
from stillhouse.core.context import Context
from stillhouse.core.curves import HELDOUT_LOSS, CurveRow, Watch
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.store import Corpus
from stillhouse.models.acceleration.batches import Ahead
from stillhouse.training.batches import epoch_batches, steps_for, times_seen
from stillhouse.training.dev_ranking import DevCandidates, sample, signal
from stillhouse.training.groups import GroupSampler
from stillhouse.training.loop import train
from stillhouse.training.measurements import within
from stillhouse.training.negatives import Negatives
from stillhouse.training.settings import RANKINGS, GroupTrainingConfig
from stillhouse.training.teacher import Teacher

Drawn = TypeVar("Drawn")
Draw = Callable[[str, np.ndarray, np.ndarray], Drawn]
"""`draw(split, examples_B, times_B)`: all that a loss needs except the model; it may run in another thread.

`times_B` says how often each example was seen before.
"""
GroupLoss = Callable[[str, Drawn], Tensor | Iterable[Tensor]]
"""`loss(split, drawn)`: the mean over the examples, or several losses that add up to it. Each of these must be
back-propagated before the next one is computed."""
Score = Callable[[DevCandidates], NDArray[np.float32]]
"""`score(candidates)`: the current model's scores of `candidates.pairs()`."""


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
    """Open a sampler for train and one for dev. With a teacher, they draw only the negatives that it scored.

    Raises `InputError` as `GroupSampler` does.
    """
    scores_QD = teacher.negative_scores_QD if teacher else None
    samplers = {
        split: GroupSampler(corpus, negatives, split, per_query, depth, seed, scores_QD) for split in ("train", "dev")
    }
    for split, sampler in samplers.items():
        if sampler.without_negatives:
            context.log(f"{sampler.without_negatives} {split} queries have no hard negatives")
        if sampler.unscored:
            context.log(f"{sampler.unscored} negatives of {split} queries have no teacher score and are not drawn")
    return samplers


@dataclass(frozen=True)
class Reads:
    """The texts (pairs for a cross-encoder) that are read; one that is trained on counts `READS_OF_TRAINING` times.

    `example` is per example of a step, `heldout` per dev query of the held-out loss. `passages_once` says whether a
    passage that is ranked for several dev queries is read only once.
    """

    example: int
    heldout: int
    passages_once: bool

    def measurement(self, candidates: DevCandidates | None) -> Callable[[int], int]:
        """Return `reads(n)`: the reads of a measurement on n dev queries, for their held-out loss and any ranking.

        Each query is assumed to have the average number of candidates.
        """
        if candidates is None:
            return lambda queries: queries * self.heldout
        row_P = candidates.pairs()[1]
        total, pairs, rows = len(candidates), len(row_P), len(np.unique(row_P))

        def read(queries: int) -> int:
            own = -(-pairs * queries // total)
            return queries * self.heldout + (queries + min(own, rows) if self.passages_once else own)

        return read


def train_on_groups(
    model: nn.Module,
    samplers: Mapping[str, GroupSampler],
    draw: Draw[Drawn],
    loss: GroupLoss[Drawn],
    score: Score,
    reads: Reads,
    config: GroupTrainingConfig,
    context: Context,
) -> list[CurveRow]:
    """Train `model` in place on the train queries and return its curves; dev queries give the held-out loss.

    Dev groups are always drawn as if for the first time, so every held-out loss is of the same groups. If a ranking
    chooses the step, `score` ranks the candidates of the same dev queries, and the parameters that rank best are kept.
    """
    count = len(samplers["train"])
    batch, times = epoch_batches(count, config.batch_size, config.seed), times_seen(count, config.batch_size)
    steps = steps_for(count, config.batch_size, config.epochs, config.max_steps)
    ranks = config.metric_for_best_model in RANKINGS
    dev = sample(len(samplers["dev"]), config.eval_queries or len(samplers["dev"]), config.seed)
    candidates = DevCandidates.of(samplers["dev"], dev, config.eval_depth) if ranks else None
    if config.eval_share is not None and not config.eval_steps:
        last = min(steps, config.last_step or steps)
        trained = last * min(config.batch_size, count) * reads.example
        read = reads.measurement(candidates)
        made = within(config.eval_share, trained, last, len(dev), read)
        kept = np.isin(dev, sample(len(samplers["dev"]), made.queries, config.seed))
        part = made.count(last) * read(made.queries) / trained
        context.log(made.told(last, len(samplers["dev"]), "dev queries", part))
        dev = dev[kept]
        candidates = candidates.take(np.flatnonzero(kept)) if candidates is not None else None
        config = replace(config, eval_steps=made.every)

    def heldout_losses() -> Iterator[tuple[int, float]]:
        with context.bar("held-out loss", len(dev), "query") as bar:
            for places in chunks(len(dev), config.batch_size):
                part = dev[places]
                value = loss("dev", draw("dev", part, np.zeros_like(part)))
                yield len(part), sum(float(each) for each in ([value] if isinstance(value, Tensor) else value))
                bar.update(len(part))

    def ranking() -> Mapping[str, pd.Series]:
        assert candidates is not None
        found = candidates.measured(score(candidates))
        return {signal(config.metric_for_best_model): found[RANKINGS[config.metric_for_best_model]]}

    watch = Watch(ranking if ranks else dict, metric_in_curves(config), config.patience)
    with Ahead(lambda step: draw("train", batch(step), times(step)), steps) as drawn:
        return train(model, lambda step: loss("train", drawn(step)), heldout_losses, steps, config, context, watch)


def metric_in_curves(config: GroupTrainingConfig) -> str:
    """The name of the figure that chooses the row of the curves to keep."""
    return signal(config.metric_for_best_model) if config.metric_for_best_model in RANKINGS else HELDOUT_LOSS
