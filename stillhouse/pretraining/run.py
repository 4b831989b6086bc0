"""Pre-training from token cache to encoder folder: the work of the step `pretrain`."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.core.context import Context
from stillhouse.core.curves import CurveRow, Watch
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.models.acceleration.batches import Ahead
from stillhouse.models.acceleration.device import autocast
from stillhouse.pretraining.bottleneck_loss import BottleneckLoss
from stillhouse.pretraining.corrupted import Corruptor
from stillhouse.pretraining.heads import output_matrix
from stillhouse.pretraining.heldout import (
    ACCURACY,
    HELDOUT_BATCH,
    PLAIN_MLM,
    MaskedAccuracy,
    fixed_batches,
    masked_accuracy,
    measured,
    open_signals,
    plain_masks,
    split_passages,
    spread,
    unigram_counts,
)
from stillhouse.pretraining.inputs import Folders, open_cache, open_encoder, open_generator, start_head, with_lengths_of
from stillhouse.pretraining.masked_lm import MaskedLanguageModel, require_head
from stillhouse.pretraining.model import BottleneckPretraining
from stillhouse.pretraining.objectives import Objective
from stillhouse.pretraining.pairs.model import PairPretraining, save_towers
from stillhouse.pretraining.pairs.pair_loss import PairLoss
from stillhouse.pretraining.pairs.task import PairMaker, open_pairs
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.pretraining.signals import COVERAGE_RANK, COVERAGE_RANKS, Signals
from stillhouse.pretraining.tokens import TokenCache
from stillhouse.training.batches import epoch_batches, length_buckets, steps_for
from stillhouse.training.loop import train
from stillhouse.training.measurements import ENOUGH

EXAMPLES = 3


@dataclass(frozen=True)
class Pretrained:
    """The result of a pre-training run. `skipped` passages have no token to predict, or no pair.

    `coverage` is the share of a held-out passage's tokens among the top k of its vector, by k (BoW Algorithm 1);
    `coverage_examples` lists these tokens for a few passages (BoW Figure 3). `head_trained`: whether the encoder has a
    trained language-model head. Pair tasks also set `towers`, the trained module around the encoder, and `pair_facts`,
    the numbers of pairs.
    """

    encoder: MaskedLanguageModel
    towers: PairPretraining | None
    pair_facts: dict[str, dict[str, int]]
    head_trained: bool
    rows: list[CurveRow]
    coverage: dict[int, float]
    coverage_examples: list[dict[str, Any]]
    accuracy: MaskedAccuracy
    training_passages: int
    heldout_passages: int
    skipped: int
    steps: int

    def save(self, folder: Path) -> None:
        """Write the encoder folder; after pair tasks it includes the projection and the second tower."""
        if self.towers is None:
            self.encoder.save(folder)
        else:
            save_towers(self.towers, self.encoder, folder)


@dataclass(frozen=True)
class Setup:
    """The module that a family of objectives trains, and the rows of the token cache to train and measure on.

    `make` draws the batches. `training` and `heldout` are int64; `skipped` rows are in neither.
    """

    module: BottleneckPretraining | PairPretraining
    make: Corruptor | PairMaker
    training: NDArray[np.int64]
    heldout: NDArray[np.int64]
    skipped: int


def pretrain(config: PretrainingConfig, folders: Folders, context: Context) -> Pretrained:
    """Train an encoder by `config.objective` and leave it with the parameters of its best measurement.

    Raises `InputError` before training if an input that the objective needs is missing or does not fit, and after
    training if an encoder trained on masked inputs predicts masked held-out tokens no better than a constant guess, or,
    with fewer of them than `ENOUGH`, if its held-out loss has not fallen.
    """
    objective = config.row()
    encoder = open_encoder(config, folders)
    config = with_lengths_of(encoder, config)
    cache = open_cache(encoder, objective, folders)
    device = context.torch_device()
    setup = _setup(config, objective, encoder, cache, folders, device)
    counts_V = unigram_counts(cache, setup.training, len(output_matrix(encoder.model)[0]))
    if not objective.pairs and not encoder.head_trained:
        start_head(encoder, counts_V)
    steps = steps_for(len(setup.training), config.batch_size, config.epochs, config.max_steps)
    if config.trainable == "missing_head" and encoder.head_trained:
        context.log("the model already has a trained language-model head: nothing to train")
        steps = 0
    batch = epoch_batches(len(setup.training), config.batch_size, config.seed)
    if config.bucket_steps:
        lengths = cache.lengths()[setup.training]
        # Stay within an epoch, or a batch would contain the same passage several times.
        window = min(config.bucket_steps, max(1, len(setup.training) // config.batch_size))
        batch = length_buckets(batch, lengths, steps, window, config.seed)

    per_step = min(config.batch_size, len(setup.training))
    heldout, eval_steps = measured(config, setup.heldout, per_step, steps, context)
    checked = spread(setup.heldout, max(len(heldout), ENOUGH))  # fewer might refuse a head that has learned
    counts = len(setup.training), len(setup.heldout), setup.skipped, steps
    config = replace(config, eval_steps=eval_steps)
    of_objective: Any = PairLoss if objective.pairs else BottleneckLoss
    loss = of_objective(setup.module, setup.make, config, heldout)

    def heldout_losses() -> Iterable[tuple[int, Tensor]]:
        return context.progress(loss.heldout(), "held-out loss", math.ceil(len(heldout) / HELDOUT_BATCH), "batch")

    encoder.model.to(device)
    pair_module = setup.module if isinstance(setup.module, PairPretraining) else None
    by_role = (pair_module.queries, pair_module.passages) if pair_module else None
    signals = open_signals(encoder, cache, config, heldout, device, context, by_role)
    watch = Watch(signals if config.signals else dict, config.metric_for_best_model, config.patience)
    with Ahead(lambda step: loss.draw(setup.training[batch(step)], step), steps) as drawn:
        rows = train(
            setup.module,
            lambda step: loss.training(drawn(step), step),
            heldout_losses,
            steps,
            config,
            context,
            watch,
            examples=lambda step: setup.training[batch(step)],
        )
    with torch.no_grad(), autocast(config.precision, device):
        plain = plain_masks(cache, config, encoder, device, config.encoder_mlm_probability, config.mask_unit)
        batches = (inputs for _, inputs in fixed_batches(plain, checked, config.seed, ACCURACY))
        accuracy = masked_accuracy(encoder.model, batches, most_frequent=int(counts_V.argmax()))
        with doing("measuring token coverage of the vectors"):
            coverage = signals.coverage(COVERAGE_RANKS)
            examples = _coverage_examples(encoder, signals)
    # Which of a few tokens are right is chance; the loss counts the probability of each.
    learned = accuracy.head > accuracy.unigram or (
        accuracy.positions < ENOUGH and min(row.heldout_loss for row in rows) < rows[0].heldout_loss
    )
    if objective.masked_lm and not learned and not encoder.head_trained:
        raise InputError(
            f"after {steps} steps the language-model head predicts {accuracy.head:.1%} of the masked tokens correctly, "
            f"the most frequent token makes up {accuracy.unigram:.1%}; raise epochs, max_steps or learning_rate"
        )
    setup.module.cpu()
    bag = bool(objective.pairs) and config.pair_encoder == "bow_mlp"
    head_trained = (encoder.head_trained or not objective.pairs) and not bag
    pair_facts = setup.make.facts() if isinstance(setup.make, PairMaker) else {}
    return Pretrained(encoder, pair_module, pair_facts, head_trained, rows, coverage, examples, accuracy, *counts)


def _setup(
    config: PretrainingConfig,
    objective: Objective,
    encoder: MaskedLanguageModel,
    cache: TokenCache,
    folders: Folders,
    device: torch.device,
) -> Setup:
    if objective.pairs:
        maker = open_pairs(
            cache,
            objective.pairs,
            config,
            heldout_fraction=config.heldout_fraction,
            max_eval_samples=config.max_eval_samples,
            seed=config.seed,
            device=device,
        )
        torch.manual_seed(config.seed)
        pairs = PairPretraining(encoder.model, encoder.settings.pooling, config, cache.specials)
        return Setup(pairs, maker, maker.training, maker.heldout, maker.skipped)
    if objective.name != PLAIN_MLM.name:
        require_head("model to start from", encoder)
    training, heldout, skipped = split_passages(cache, config)
    generator = open_generator(config, objective, folders, cache, device)
    torch.manual_seed(config.seed)
    module = BottleneckPretraining(
        encoder.model,
        objective,
        encoder.settings.pooling,
        generator=generator.model if generator and generator.learns else None,
        generator_weight=config.generator_weight,
        head_only=config.trainable != "all",
    )
    make = Corruptor(cache, len(encoder.tokenizer), objective, config, device, generator)
    return Setup(module, make, training, heldout, skipped)


def _coverage_examples(encoder: MaskedLanguageModel, signals: Signals) -> list[dict[str, Any]]:
    """A few held-out passages with the tokens that their vectors rank first, for the page of a comparison.

    `in_passage`: whether the passage contains the token's id; the names of word pieces do not show this.
    """
    ids_BL, top_BK, hits_BK = signals.nearest_tokens(EXAMPLES, COVERAGE_RANK)
    names = encoder.tokenizer.convert_ids_to_tokens
    return [
        {
            "passage": encoder.tokenizer.decode(ids, skip_special_tokens=True),
            "tokens": [
                {"token": token, "rank": rank, "in_passage": hit}
                for rank, (token, hit) in enumerate(zip(names(top), hits), start=1)
            ],
        }
        for ids, top, hits in zip(ids_BL.tolist(), top_BK.tolist(), hits_BK.tolist())
    ]
