"""A pre-training from token cache to encoder folder: what the step `pretrain` does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stillhouse.artifacts import read_manifest
from stillhouse.context import Context
from stillhouse.errors import InputError
from stillhouse.pretraining.accuracy import MaskedAccuracy, masked_accuracy, unigram_counts
from stillhouse.pretraining.corrupted import CorruptedBatch, Corruptor
from stillhouse.pretraining.generator import Generator
from stillhouse.pretraining.heads import output_matrix
from stillhouse.pretraining.masked_lm import (
    MaskedLanguageModel,
    load_masked_lm,
    require_head,
    require_same_vocabulary,
)
from stillhouse.pretraining.model import BottleneckPretraining, LossOptions
from stillhouse.pretraining.objectives import Objective, find_objective
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.pretraining.signals import COVERAGE_RANKS, MLM_RATE, Signals
from stillhouse.pretraining.tokens import SpecialTokens, TokenCache
from stillhouse.training.batches import epoch_batches, length_buckets, steps_for
from stillhouse.training.curves import CurveRow, Watch
from stillhouse.training.loop import train
from stillhouse.training.precision import autocast

HELDOUT_BATCH = 32
"""Passages at once where no gradient is kept; fixed, so that masks of held-out passages are the same in every run."""
SIGNAL_PASSAGES = 512
HELDOUT, ACCURACY, SIGNALS = 1, 2, 3
"""Second parts of the seeds of what is fixed for a whole run; training steps have (seed, 0, step)."""
PLAIN_MLM = find_objective("mlm")


@dataclass(frozen=True)
class Folders:
    """Where a pre-training reads from."""

    tokens: Path
    init: Path
    generator: Path | None = None
    importance: Path | None = None


@dataclass(frozen=True)
class Pretrained:
    """What a pre-training gives back. `skipped` passages have no token that could be predicted.

    `coverage` is the share of a held-out passage's tokens among the top k of its vector, by k (002 Algorithm 1).
    """

    encoder: MaskedLanguageModel
    rows: list[CurveRow]
    coverage: dict[int, float]
    accuracy: MaskedAccuracy
    training_passages: int
    heldout_passages: int
    skipped: int
    steps: int


def pretrain(config: PretrainingConfig, folders: Folders, context: Context) -> Pretrained:
    """Trains an encoder by `config.objective` and leaves it with the parameters of the lowest held-out loss.

    Raises `InputError`, before any training, when an input that the objective needs is missing or does not fit; and
    after it, when an encoder trained on masked inputs names no more masked held-out tokens than a constant guess.
    """
    objective = config.row()
    encoder, cache = _open(config, objective, folders)
    device = context.torch_device()
    vocabulary = output_matrix(encoder.model)[0].shape[0]
    training, heldout, skipped = split_passages(cache, config)
    counts_V = unigram_counts(cache, training, vocabulary)
    if not encoder.head_trained:
        _start_head(encoder, counts_V)
    generator = _generator(config, objective, folders, cache, device)
    torch.manual_seed(config.seed)
    model = BottleneckPretraining(
        encoder.model,
        objective,
        encoder.settings.pooling,
        options=LossOptions(config.loss_mean, config.bag_logits, config.generator_weight),
        generator=generator.model if generator and generator.learns else None,
        head_only=config.trainable == "head",
    )
    corrupt = Corruptor(cache, vocabulary, objective, config, device, generator)
    steps = steps_for(len(training), config.batch_size, config.epochs, config.max_steps)
    batch = epoch_batches(len(training), config.batch_size, config.seed)
    if config.bucket_steps:
        batch = length_buckets(batch, cache.lengths()[training], steps, config.bucket_steps, config.seed)

    def batch_losses(step: int) -> Iterator[Tensor]:
        rows = training[batch(step)]
        for number, part in enumerate(np.array_split(rows, min(config.accumulate, len(rows)))):
            inputs = corrupt(part, np.random.default_rng([config.seed, 0, step, number]))
            yield model(inputs, bag_weight(step, steps, config.bag_weight_end)) * (len(part) / len(rows))

    def heldout_loss() -> float:
        losses = [(len(batch.ids_BL), float(model(batch))) for batch in fixed_batches(corrupt, heldout, HELDOUT)]
        return sum(size * loss for size, loss in losses) / len(heldout)

    plain = Corruptor(cache, vocabulary, PLAIN_MLM, config, device)
    signals = _signals(encoder, plain, heldout)
    watch = Watch(signals if config.signals else dict, config.stop_on, config.patience)
    rows = train(model, batch_losses, heldout_loss, steps, config, context, watch, lambda step: training[batch(step)])
    with autocast(config.precision, device):
        accuracy = masked_accuracy(
            encoder.model, fixed_batches(plain, heldout, ACCURACY), most_frequent=int(counts_V.argmax())
        )
    if objective.masked_lm and accuracy.head <= accuracy.unigram:
        raise InputError(
            f"after {steps} steps the language-model head names {accuracy.head:.1%} of the masked tokens, the most "
            f"frequent token alone is {accuracy.unigram:.1%}; train longer (--epochs) or faster (--learning-rate)"
        )
    with torch.no_grad(), autocast(config.precision, device):
        coverage = signals.coverage(COVERAGE_RANKS)
    encoder.model.cpu()
    return Pretrained(encoder, rows, coverage, accuracy, len(training), len(heldout), skipped, steps)


def bag_weight(step: int, steps: int, end: float) -> float:
    """The weight of the bag of words: falls from 1 along a cosine to `end` at the last step (the code of 002).

    A function of the step alone, so that neither accumulation nor a resumed run changes it.
    """
    return end + (1 - end) * 0.5 * (1 + math.cos(math.pi * step / max(1, steps - 1)))


def _signals(encoder: MaskedLanguageModel, plain: Corruptor, heldout: NDArray[np.int64]) -> Signals:
    """Signals on the held-out passages; their masks are the same for every objective and rate."""
    fixed = replace(plain, config=replace(plain.config, objective=PLAIN_MLM.name, encoder_mask=MLM_RATE))
    some = heldout[np.linspace(0, len(heldout) - 1, min(len(heldout), SIGNAL_PASSAGES)).astype(np.int64)]
    masked = list(fixed_batches(fixed, some, SIGNALS))
    return Signals(encoder.model, encoder.settings.pooling, encoder.settings.normalize, masked)


def split_passages(cache: TokenCache, config: PretrainingConfig) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Rows to train on, rows held out (both int64, ascending), and how many passages have no token to predict.

    Raises `InputError` for fewer than two passages.
    """
    ordinary_T = ~np.isin(cache.ids, cache.specials.all)
    total = np.concatenate([[0], np.cumsum(ordinary_T)])
    kept = np.minimum(cache.offsets[1:], cache.offsets[:-1] + config.max_length - 2)
    rows = np.flatnonzero(total[kept] > total[cache.offsets[:-1]])
    if len(rows) < 2:
        raise InputError(f"pre-training needs at least 2 passages with tokens, there are {len(rows)}")
    count = min(max(1, round(len(rows) * config.heldout_fraction)), config.heldout_limit)
    order = np.random.default_rng([config.seed, HELDOUT]).permutation(rows)
    return np.sort(order[count:]), np.sort(order[:count]), len(cache) - len(rows)


def fixed_batches(corrupt: Corruptor, rows: NDArray[np.int64], purpose: int) -> Iterator[CorruptedBatch]:
    """The passages of `rows` in batches, corrupted the same way in every pass and every run of one seed."""
    for number, start in enumerate(range(0, len(rows), HELDOUT_BATCH)):
        rng = np.random.default_rng([corrupt.config.seed, purpose, number])
        yield corrupt(rows[start : start + HELDOUT_BATCH], rng)


def _open(config: PretrainingConfig, objective: Objective, folders: Folders) -> tuple[MaskedLanguageModel, TokenCache]:
    if objective.needs_generator and folders.generator is None:
        raise InputError(
            f"objective {objective.name!r} needs --generator: a masked language model that replaces tokens"
        )
    if objective.needs_importance and folders.importance is None:
        raise InputError(f"objective {objective.name!r} needs --importance; `stillhouse importance` makes it")
    encoder = load_masked_lm(folders.init, config.seed)
    if objective.name != PLAIN_MLM.name:
        require_head("model to start from", encoder)
    require_same_vocabulary("model to start from", encoder.tokenizer, _tokenizer_of(folders.tokens))
    longest = getattr(encoder.model.config, "max_position_embeddings", config.max_length)
    if config.max_length > longest:
        raise InputError(f"the model reads at most {longest} tokens; lower max_length from {config.max_length}")
    importance = folders.importance if objective.needs_importance else None
    return encoder, TokenCache.open(folders.tokens, SpecialTokens.of(encoder.tokenizer), importance)


def _tokenizer_of(tokens: Path) -> str:
    return str(read_manifest(tokens, verify=False).facts.get("tokenizer"))


def _generator(
    config: PretrainingConfig,
    objective: Objective,
    folders: Folders,
    cache: TokenCache,
    device: torch.device,
) -> Generator | None:
    if not objective.needs_generator:
        return None
    assert folders.generator is not None
    generator = load_masked_lm(folders.generator, config.seed)
    if objective.generator != "joint_random":
        require_head("generator", generator)
    require_same_vocabulary("generator", generator.tokenizer, _tokenizer_of(folders.tokens))
    if objective.generator == "joint_random":
        torch.manual_seed(config.seed)
        generator = replace(generator, model=type(generator.model)(generator.model.config))
    return Generator.of(generator.model, cache.specials, device, learns=objective.generator != "frozen")


def _start_head(encoder: MaskedLanguageModel, counts_V: NDArray[np.int64]) -> None:
    """Gives a new head the training passages' unigram distribution as its bias, so that it starts from the baseline."""
    _, bias_V = output_matrix(encoder.model)
    smoothed_V = torch.from_numpy(counts_V).double() + 0.1
    with torch.no_grad():
        bias_V.copy_((smoothed_V / smoothed_V.sum()).log())
