"""A pre-training from token cache to encoder folder: what the step `pretrain` does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from stillhouse.context import Context, world_size
from stillhouse.errors import InputError
from stillhouse.monitoring.activity import doing
from stillhouse.pretraining.accuracy import MaskedAccuracy, masked_accuracy, unigram_counts
from stillhouse.pretraining.corrupted import Corruptor
from stillhouse.pretraining.heads import output_matrix
from stillhouse.pretraining.heldout import (
    ACCURACY,
    HELDOUT,
    HELDOUT_BATCH,
    PLAIN_MLM,
    fixed_batches,
    open_signals,
    plain_masks,
    split_passages,
)
from stillhouse.pretraining.inputs import Folders, open_cache, open_encoder, open_generator, start_head
from stillhouse.pretraining.masked_lm import MaskedLanguageModel, require_head
from stillhouse.pretraining.model import BottleneckPretraining, LossOptions
from stillhouse.pretraining.objectives import Objective
from stillhouse.pretraining.pairs.model import PairPretraining
from stillhouse.pretraining.pairs.saving import save_towers
from stillhouse.pretraining.pairs.settings import pair_tasks
from stillhouse.pretraining.pairs.task import PairMaker, open_pairs
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.pretraining.signals import COVERAGE_RANK, COVERAGE_RANKS, Signals
from stillhouse.pretraining.token_mean import all_tokens, token_factors
from stillhouse.pretraining.tokens import TokenCache
from stillhouse.training.ahead import Ahead
from stillhouse.training.batches import epoch_batches, length_buckets, steps_for
from stillhouse.training.curves import CurveRow, Watch
from stillhouse.training.loop import train
from stillhouse.training.precision import autocast
from stillhouse.training.processes import add_up, own_parts

EXAMPLES = 3


@dataclass(frozen=True)
class Pretrained:
    """What a pre-training gives back. `skipped` passages have nothing that could be predicted, or no pair.

    `coverage` is the share of a held-out passage's tokens among the top k of its vector, by k (002 Algorithm 1);
    `coverage_examples` names these tokens for a few passages (002 Figure 3). `head_trained`: whether the encoder has a
    language-model head that was ever trained. `towers` and `pair_facts` are there after pair tasks: the module that was
    trained on the encoder, and how many pairs there were.
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
        """Writes the encoder folder; after pair tasks with their projection and their second tower."""
        if self.towers is None:
            self.encoder.save(folder)
        else:
            save_towers(self.towers, self.encoder, folder)


@dataclass(frozen=True)
class Lesson:
    """What one family of objectives trains: a module whose call on a batch is its loss, and how batches are made.

    `make(rows, rng)` is one, or `make.batch(make.draw(rows, rng))`, whose `draw` needs neither a model nor the device.
    `training` and `heldout` int64: the passages that batches are made of; `weighted`: whether the module takes the
    weight of the bag of words.
    """

    module: nn.Module
    make: Corruptor | PairMaker
    training: NDArray[np.int64]
    heldout: NDArray[np.int64]
    skipped: int
    weighted: bool = False


def pretrain(config: PretrainingConfig, folders: Folders, context: Context) -> Pretrained:
    """Trains an encoder by `config.objective` and leaves it with the parameters of its best measurement.

    Raises `InputError`, before any training, when an input that the objective needs is missing or does not fit; and
    after it, when an encoder trained on masked inputs names no more masked held-out tokens than a constant guess.
    """
    objective = config.row()
    encoder = open_encoder(config, folders)
    cache = open_cache(encoder, objective, folders)
    device = context.torch_device()
    if objective is None and world_size() > 1:
        raise InputError("pair tasks take their negatives from the whole batch; start them without torchrun")
    if objective is None:
        lesson = _pair_lesson(config, encoder, cache, device)
    else:
        lesson = _bottleneck_lesson(config, objective, encoder, cache, folders, device)
    counts_V = unigram_counts(cache, lesson.training, len(output_matrix(encoder.model)[0]))
    if objective is not None and not encoder.head_trained:
        start_head(encoder, counts_V)
    steps = steps_for(len(lesson.training), config.batch_size, config.epochs, config.max_steps)
    if config.trainable == "missing_head" and encoder.head_trained:
        context.log("the model has a trained language-model head: it stays as it is")
        steps = 0
    batch = epoch_batches(len(lesson.training), config.batch_size, config.seed)
    if config.bucket_steps:
        lengths = cache.lengths()[lesson.training]
        # Within an epoch, or a batch would get the same passage, of the same length, many times.
        window = min(config.bucket_steps, max(1, len(lesson.training) // config.batch_size))
        batch = length_buckets(batch, lengths, steps, window, config.seed)

    make: Any = lesson.make  # what the one kind draws, the same kind makes a batch of

    def draw(step: int) -> list[tuple[int, float, Any]]:
        """The parts of a step that are this process's: each one's number, share of the step, and what was drawn."""
        rows = lesson.training[batch(step)]
        parts = np.array_split(rows, min(max(config.accumulate, world_size()), len(rows)))
        return [
            (number, len(part) / len(rows), make.draw(part, np.random.default_rng([config.seed, 0, step, number])))
            for number, part in ((number, parts[number]) for number in own_parts(len(parts)))
        ]

    over_tokens = config.loss_mean == "token" and objective is not None

    def factors(drawn: Any, share: float, total: Tensor | None) -> dict[str, Any]:
        return {} if total is None else {"factors": token_factors(make.predicted(drawn), share, total)}

    def batch_losses(step: int) -> Iterator[Tensor]:
        weights = {"bag_weight": bag_weight(step, steps, config.bag_weight_end)} if lesson.weighted else {}
        parts, total = ahead(step), None
        if over_tokens:
            total = all_tokens((make.predicted(drawn) for _, _, drawn in parts), device)
            add_up(total)
        for number, share, drawn in parts:
            # Dropout is a part's own too, whichever process computes it.
            torch.manual_seed((config.seed * 1_000_003 + step) * 1_009 + number)
            yield lesson.module(make.batch(drawn), **weights, **factors(drawn, share, total)) * share

    def heldout_drawn() -> Iterator[tuple[int, Any]]:
        return fixed_batches(make.draw, lesson.heldout, config.seed, HELDOUT)

    heldout_total = all_tokens((make.predicted(d) for _, d in heldout_drawn()), device) if over_tokens else None

    def heldout_loss() -> float:
        count = len(lesson.heldout)
        batches = context.progress(heldout_drawn(), "held-out loss", math.ceil(count / HELDOUT_BATCH), "batch")
        losses = (
            size * float(lesson.module(make.batch(drawn), **factors(drawn, size / count, heldout_total)))
            for size, drawn in batches
        )
        return sum(losses) / count

    encoder.model.to(device)
    pair_module = lesson.module if isinstance(lesson.module, PairPretraining) else None
    by_role = (pair_module.queries, pair_module.passages) if pair_module else None
    signals = open_signals(encoder, cache, config, lesson.heldout, device, context, by_role)
    watch = Watch(signals if config.signals else dict, config.stop_on, config.patience)
    with Ahead(draw, steps) as ahead:
        rows = train(
            lesson.module,
            batch_losses,
            heldout_loss,
            steps,
            config,
            context,
            watch,
            examples=lambda step: lesson.training[batch(step)],
        )
    with torch.no_grad(), autocast(config.precision, device):
        plain = plain_masks(cache, config, encoder, device, config.encoder_mask, config.mask_unit)
        batches = (inputs for _, inputs in fixed_batches(plain, lesson.heldout, config.seed, ACCURACY))
        accuracy = masked_accuracy(encoder.model, batches, most_frequent=int(counts_V.argmax()))
        with doing("measuring what the vectors hold"):
            coverage = signals.coverage(COVERAGE_RANKS)
            examples = _coverage_examples(encoder, signals)
    no_better = objective is not None and objective.masked_lm and accuracy.head <= accuracy.unigram
    if no_better and not encoder.head_trained:
        raise InputError(
            f"after {steps} steps the language-model head names {accuracy.head:.1%} of the masked tokens, the most "
            f"frequent token alone is {accuracy.unigram:.1%}; train longer (--epochs) or faster (--learning-rate)"
        )
    lesson.module.cpu()
    counts = (len(lesson.training), len(lesson.heldout), lesson.skipped, steps)
    bag = objective is None and config.pair_encoder == "bow_mlp"
    head_trained = (encoder.head_trained or objective is not None) and not bag
    pair_facts = make.facts() if isinstance(make, PairMaker) else {}
    return Pretrained(encoder, pair_module, pair_facts, head_trained, rows, coverage, examples, accuracy, *counts)


def bag_weight(step: int, steps: int, end: float) -> float:
    """The weight of the bag of words: falls from 1 along a cosine to `end` at the last step (the code of 002).

    A function of the step alone, so that neither accumulation nor a resumed run changes it.
    """
    return end + (1 - end) * 0.5 * (1 + math.cos(math.pi * step / max(1, steps - 1)))


def _bottleneck_lesson(
    config: PretrainingConfig,
    objective: Objective,
    encoder: MaskedLanguageModel,
    cache: TokenCache,
    folders: Folders,
    device: torch.device,
) -> Lesson:
    if objective.name != PLAIN_MLM.name:
        require_head("model to start from", encoder)
    training, heldout, skipped = split_passages(cache, config)
    generator = open_generator(config, objective, folders, cache, device)
    torch.manual_seed(config.seed)
    module = BottleneckPretraining(
        encoder.model,
        objective,
        encoder.settings.pooling,
        options=LossOptions(config.loss_mean, config.bag_logits, config.generator_weight),
        generator=generator.model if generator and generator.learns else None,
        head_only=config.trainable != "all",
    )
    make = Corruptor(cache, len(encoder.tokenizer), objective, config, device, generator)
    return Lesson(module, make, training, heldout, skipped, weighted=objective.bag_of_words)


def _pair_lesson(
    config: PretrainingConfig, encoder: MaskedLanguageModel, cache: TokenCache, device: torch.device
) -> Lesson:
    maker = open_pairs(
        cache,
        pair_tasks(config.objective),
        config,
        heldout_fraction=config.heldout_fraction,
        heldout_limit=config.heldout_limit,
        seed=config.seed,
        device=device,
    )
    torch.manual_seed(config.seed)
    module = PairPretraining(encoder.model, encoder.settings.pooling, config, cache.specials)
    return Lesson(module, maker, maker.training, maker.heldout, maker.skipped)


def _coverage_examples(encoder: MaskedLanguageModel, signals: Signals) -> list[dict[str, Any]]:
    """A few held-out passages with the tokens that their vectors rank first, for the page of a comparison.

    `in_passage`: whether the token's id is among the passage's own, which the names of word pieces do not show.
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
