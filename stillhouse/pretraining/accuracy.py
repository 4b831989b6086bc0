"""The accuracy of a language-model head at masked positions, compared with the simplest guess.

Shape suffixes: B passages, L tokens, N masked positions, V vocabulary, C positions of one chunk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional
from transformers import PreTrainedModel

from stillhouse.monitoring.activity import doing
from stillhouse.pretraining.corrupted import CorruptedBatch
from stillhouse.pretraining.cross_entropy import rows_at_once
from stillhouse.pretraining.heads import family_of, output_matrix
from stillhouse.pretraining.tokens import TokenCache


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
        hidden_BLD = model.base_model(
            input_ids=batch.encoder.ids_BL, attention_mask=batch.attention_BL.long()
        ).last_hidden_state
        targets_N = batch.ids_BL[batch.encoder.mask_BL]
        states_ND = hidden_BLD[batch.encoder.mask_BL]
        for states_CD, targets_C in zip(states_ND.split(rows), targets_N.split(rows)):
            best_C = functional.linear(transform(states_CD), weight_VE, bias_V).argmax(-1)
            right += int((best_C == targets_C).sum())
        frequent += int((targets_N == most_frequent).sum())
        positions += len(targets_N)
    return MaskedAccuracy(right / max(1, positions), frequent / max(1, positions), positions)
