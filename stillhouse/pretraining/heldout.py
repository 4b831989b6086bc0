"""The held-out passages of a pre-training run and their measurements: loss, signals, masked tokens.

Shape suffixes: B passages, L tokens, E and D width, N masked positions, V vocabulary, C positions of one chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import PreTrainedModel

from stillhouse.core.arrays import evenly_spaced
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.pretraining.corrupted import CorruptedBatch, Corruptor
from stillhouse.pretraining.cross_entropy import rows_at_once
from stillhouse.pretraining.heads import family_of, last_states, output_matrix
from stillhouse.pretraining.masked_lm import MaskedLanguageModel
from stillhouse.pretraining.objectives import find_objective
from stillhouse.pretraining.pairs.batch import PairBatch
from stillhouse.pretraining.pairs.settings import PairConfig
from stillhouse.pretraining.pairs.task import open_pairs
from stillhouse.pretraining.settings import PretrainingConfig
from stillhouse.pretraining.signals import ICT, MLM_RATE, Encode, Signals
from stillhouse.pretraining.tokens import ADDED, TokenCache
from stillhouse.training.measurements import READS_OF_TRAINING, within

B = TypeVar("B")

HELDOUT_BATCH = 32
"""Passages per batch without gradients; fixed, so that held-out passages have the same masks in every run."""
SIGNAL_PASSAGES = 512
SIGNAL_READS = 3
"""How many times the signals read a passage: masked, whole, and as a sentence with the rest (ICT)."""
HELDOUT, ACCURACY, SIGNALS, SENTENCES = 1, 2, 3, 4
"""Second parts of the seeds for draws that are fixed for a whole run; training steps use (seed, 0, step)."""
PLAIN_MLM = find_objective("mlm")


def split_passages(cache: TokenCache, config: PretrainingConfig) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Training rows, held-out rows (both int64, ascending), and the number of passages with no token to predict.

    Raises `InputError` for fewer than two passages.
    """
    rows = _with_tokens(cache, config.passage_tokens)
    if len(rows) < 2:
        raise InputError(f"pre-training needs at least 2 passages with tokens, there are {len(rows)}")
    count = min(max(1, round(len(rows) * config.heldout_fraction)), config.max_eval_samples)
    order = np.random.default_rng([config.seed, HELDOUT]).permutation(rows)
    return np.sort(order[count:]), np.sort(order[:count]), len(cache) - len(rows)


def measured(
    config: PretrainingConfig, heldout: NDArray[np.int64], examples: int, steps: int, context: Context
) -> tuple[NDArray[np.int64], int | None]:
    """The rows of `heldout` to measure on, evenly spaced, and the steps between measurements (None: the default).

    The measurements of a training of `steps` steps of `examples` examples are within `config.eval_share`, together
    with the accuracy, the coverage and its examples after it. A pair of texts counts as one passage.
    """
    last = min(steps, config.last_step or steps)
    if config.eval_steps or config.eval_share is None or not last:
        return heldout, config.eval_steps

    def reads(passages: int) -> int:
        return passages + (SIGNAL_READS * min(passages, SIGNAL_PASSAGES) if config.signals else 0)

    def at_end(passages: int) -> int:
        return passages + min(passages, SIGNAL_PASSAGES) + min(passages, HELDOUT_BATCH)

    trained = READS_OF_TRAINING * last * examples
    made = within(config.eval_share, trained, last, len(heldout), reads, at_end)
    part = (made.count(last) * reads(made.queries) + at_end(made.queries)) / trained
    context.log(made.told(last, len(heldout), "held-out passages", part))
    return spread(heldout, made.queries), made.every


def spread(rows: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """`count` of the rows, evenly spaced, or all if there are no more."""
    return rows[evenly_spaced(len(rows), count)]


def _with_tokens(cache: TokenCache, max_length: int, block: int = 65_536) -> NDArray[np.int64]:
    """The passages that have a token to predict, int64 ascending; only one block is in memory at a time."""
    found = []
    for start in range(0, len(cache), block):
        offsets = cache.offsets[start : start + block + 1]
        ordinary_T = ~np.isin(cache.ids[offsets[0] : offsets[-1]], cache.specials.all)
        total = np.concatenate([[0], np.cumsum(ordinary_T)])
        begins, ends = offsets[:-1] - offsets[0], offsets[1:] - offsets[0]
        kept = np.minimum(ends, begins + max_length - ADDED)
        found.append(start + np.flatnonzero(total[kept] > total[begins]))
    return np.concatenate(found)


def fixed_batches(
    make: Callable[[NDArray[np.int64], np.random.Generator], B], rows: NDArray[np.int64], seed: int, purpose: int
) -> Iterator[tuple[int, B]]:
    """Yield size and batch for all `rows`, the same in every pass and every run with one seed."""
    for number, start in enumerate(range(0, len(rows), HELDOUT_BATCH)):
        part = rows[start : start + HELDOUT_BATCH]
        yield len(part), make(part, np.random.default_rng([seed, purpose, number]))


def open_signals(
    encoder: MaskedLanguageModel,
    cache: TokenCache,
    config: PretrainingConfig,
    heldout: NDArray[np.int64],
    device: torch.device,
    context: Context,
    towers: tuple[Encode, Encode] | None = None,
) -> Signals:
    """Signals on at most 512 evenly spaced held-out passages, masked the same for every objective.

    Raises `InputError` when `metric_for_best_model` is a signal that these passages cannot provide.
    """
    rows = spread(heldout, SIGNAL_PASSAGES)
    plain = plain_masks(cache, config, encoder, device, MLM_RATE)
    masked = [batch for _, batch in fixed_batches(plain, rows, config.seed, SIGNALS)]
    pairs = _ict_pairs(cache, config, rows, device) if config.signals else []
    if config.signals and not pairs:
        if config.metric_for_best_model == ICT:
            raise InputError(
                f"the held-out passages yield no ICT pairs, which {ICT} needs; choose another metric_for_best_model"
            )
        context.log(f"[pretrain] the held-out passages yield no ICT pairs: skipping the signal {ICT}")
    return Signals(encoder.model, encoder.settings.pooling, encoder.settings.normalize, masked, pairs, towers)


def plain_masks(
    cache: TokenCache,
    config: PretrainingConfig,
    encoder: MaskedLanguageModel,
    device: torch.device,
    rate: float,
    unit: str = "token",
) -> Corruptor:
    """Mask as `mlm` does, at `rate`, whatever the objective of `config`."""
    plain = replace(
        config, objective=PLAIN_MLM.name, encoder_mlm_probability=rate, mask_unit=unit, mask_replacement=None
    )
    return Corruptor(cache, len(encoder.tokenizer), PLAIN_MLM, plain, device)


def _ict_pairs(
    cache: TokenCache, config: PretrainingConfig, rows: NDArray[np.int64], device: torch.device
) -> list[PairBatch]:
    """For each passage of `rows` with several sentences, one sentence and the rest (Chang et al. 2020 §3)."""
    length = config.passage_tokens
    settings = PairConfig(query_length=min(64, length), passage_length=length, pair_title="space")
    try:
        maker = open_pairs(
            cache,
            ("ict",),
            settings,
            heldout_fraction=0.5,
            max_eval_samples=len(cache),
            seed=config.seed,
            device=device,
        )
    except InputError:  # no sentences, none with a neighbour, or only one article
        return []
    able = rows[np.isin(rows, np.concatenate([maker.training, maker.heldout]))]
    return [pairs for _, pairs in fixed_batches(maker, able, config.seed, SENTENCES)]


@dataclass(frozen=True)
class MaskedAccuracy:
    """Shares of masked tokens: `head` is predicted correctly, `unigram` is the most frequent token."""

    head: float
    unigram: float
    positions: int


@doing("counting tokens")
def unigram_counts(cache: TokenCache, rows: NDArray[np.int64], vocabulary: int, block: int = 4096) -> NDArray[np.int64]:
    """Count the tokens in the passages of `rows`, int64 [V]; special tokens count 0."""
    counts_V = np.zeros(vocabulary, dtype=np.int64)
    for start in range(0, len(rows), block):
        chosen = rows[start : start + block]
        lengths = cache.offsets[chosen + 1] - cache.offsets[chosen]
        shift = np.repeat(cache.offsets[chosen] - np.cumsum(lengths) + lengths, lengths)
        counts_V += np.bincount(cache.ids[np.arange(lengths.sum()) + shift], minlength=vocabulary)
    counts_V[list(cache.specials.all)] = 0
    return counts_V


@torch.no_grad()
@doing("measuring the language-model head")
def masked_accuracy(model: PreTrainedModel, batches: Iterable[CorruptedBatch], most_frequent: int) -> MaskedAccuracy:
    """Measure in evaluation mode at the corrupted positions of the encoder's input."""
    model.eval()
    weight_VE, bias_V = output_matrix(model)
    transform = family_of(model).transform(model)
    rows = rows_at_once(weight_VE.device, len(weight_VE))
    right = frequent = positions = 0
    for batch in batches:
        hidden_BLD = last_states(model, batch.encoder.ids_BL, batch.attention_BL)
        targets_N = batch.ids_BL[batch.encoder.mask_BL]
        states_ND = hidden_BLD[batch.encoder.mask_BL]
        for states_CD, targets_C in zip(states_ND.split(rows), targets_N.split(rows)):
            best_C = functional.linear(transform(states_CD), weight_VE, bias_V).argmax(-1)
            right += int((best_C == targets_C).sum())
        frequent += int((targets_N == most_frequent).sum())
        positions += len(targets_N)
    return MaskedAccuracy(right / max(1, positions), frequent / max(1, positions), positions)
