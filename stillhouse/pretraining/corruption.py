"""Chooses the tokens of a batch to corrupt and their replacements, vectorised over the batch, on the CPU.

Every draw takes `eligible_BL`, which is false at special tokens and padding; these are never drawn. A passage with an
eligible token always has at least one corrupted, or it would have no loss. In a passage of n eligible tokens

* `token_mask` draws round(n * p) tokens,
* `word_mask` draws whole words of at most round(n * p) tokens in total (as the code of SimLM and BoW; in no paper),
* `nested_mask` adds to a mask a second draw at p' = (p_dec - p_enc) / (1 - p_enc), so that p_dec are expected,
* `importance_mask` takes the floor(n * p) tokens of highest AMI after noise (CDMAE Algorithm 1),
* `hidden_from` hides each other eligible token from each position with probability p (BoW eq. 9, the matrix M).

Shape suffixes: B passages, L tokens including special ones and padding, W words.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Draw = Callable[[float], Mask]


def token_mask(eligible_BL: Mask, rate: float, rng: np.random.Generator) -> Mask:
    """round(n * rate) tokens of each passage, every such set equally likely; bool [B, L]."""
    return _highest(rng.random(eligible_BL.shape, dtype=np.float32), eligible_BL, _budget(eligible_BL, rate))


def word_mask(eligible_BL: Mask, word_starts_BL: Mask, rate: float, rng: np.random.Generator) -> Mask:
    """Whole words in random order up to round(n * rate) tokens, skipping words that do not fit; bool [B, L].

    If every word of a passage exceeds the budget, the first word drawn is masked whole.
    """
    rows = len(eligible_BL)
    before_BL = np.pad(eligible_BL, ((0, 0), (1, 0)))[:, :-1]
    starts_BL = eligible_BL & (word_starts_BL | ~before_BL)
    word_BL = np.cumsum(starts_BL, axis=1) - 1
    width = max(1, int(word_BL.max(initial=-1)) + 1)
    flat = (np.arange(rows)[:, None] * width + word_BL)[eligible_BL]
    size_BW = np.bincount(flat, minlength=rows * width).reshape(rows, width)
    keys_BW = np.where(size_BW > 0, rng.random((rows, width), dtype=np.float32), 2)
    order_BW = np.argsort(keys_BW, axis=1)
    size_BW = np.take_along_axis(size_BW, order_BW, axis=1)
    taken_BW = _fill(size_BW, _budget(eligible_BL, rate))
    taken_BW[:, 0] |= ~taken_BW.any(axis=1)
    chosen_BW = np.empty_like(taken_BW)
    np.put_along_axis(chosen_BW, order_BW, taken_BW, axis=1)
    return eligible_BL & np.take_along_axis(chosen_BW, np.maximum(word_BL, 0), axis=1)


def _fill(size_BW: NDArray[np.int64], budget_B: NDArray[np.int64]) -> Mask:
    """Take words from left to right, skipping those that no longer fit the budget.

    Each round takes all words before the first that does not fit. That word is larger than the remaining budget, so
    the largest open size shrinks every round, and there are at most as many rounds as the longest word has tokens.
    """
    open_BW = size_BW > 0
    taken_BW = np.zeros_like(open_BW)
    left_B1 = budget_B[:, None].copy()
    while (open_BW := open_BW & (size_BW <= left_B1)).any():
        fits_BW = open_BW & (np.cumsum(size_BW * open_BW, axis=1) <= left_B1)
        taken_BW |= fits_BW
        left_B1 -= (size_BW * fits_BW).sum(axis=1, keepdims=True)
        open_BW &= ~fits_BW
    return taken_BW


def nested_mask(inner_BL: Mask, inner_rate: float, rate: float, draw: Draw) -> Mask:
    """The union of `inner_BL` and a second draw (SimLM §3.1; rate as in the authors' code)."""
    assert inner_rate <= rate <= 1 and inner_rate < 1
    if rate == inner_rate:
        return inner_BL
    return inner_BL | draw((rate - inner_rate) / (1 - inner_rate))


def importance_mask(
    eligible_BL: Mask, importance_BL: NDArray[np.float32], rate: float, noise: float, rng: np.random.Generator
) -> Mask:
    """The floor(n * rate) tokens of highest importance after noise N(0, noise) (CDMAE Algorithm 1, in descending
    order)."""
    perturbed_BL = importance_BL + noise * rng.standard_normal(eligible_BL.shape, dtype=np.float32)
    count_B = np.floor(eligible_BL.sum(axis=1) * rate).astype(np.int64)
    return _highest(perturbed_BL, eligible_BL, _at_least_one(count_B, eligible_BL))


def hidden_from(eligible_BL: Mask, rate: float, rng: np.random.Generator) -> Mask:
    """The tokens that each position does not see, bool [B, L, L]: always its own, others with probability `rate`.

    Every pair is drawn independently, so each position has its own visible tokens (RetroMAE; BoW §3.1), at a
    resolution of 1/65,536. Ineligible (special) tokens are hidden only from themselves.
    """
    rows, length = eligible_BL.shape
    size = rows * length * length
    dice = np.frombuffer(rng.bytes(2 * size), dtype=np.uint16).reshape(rows, length, length)
    hidden_BLL = (dice < round(rate * 65_536)) & eligible_BL[:, None, :]
    hidden_BLL[:, np.arange(length), np.arange(length)] = True
    return hidden_BLL


def replace_80_10_10(
    ids_BL: NDArray[np.int64], mask_BL: Mask, mask_id: int, ordinary: NDArray[np.int64], rng: np.random.Generator
) -> NDArray[np.int64]:
    """Put [MASK] in 80 % of the masked positions, a random token of `ordinary` in 10 %, and keep the token in 10 %.

    `ordinary` holds the ids of the vocabulary without special tokens.
    """
    replaced_BL = ids_BL.copy()
    where = np.nonzero(mask_BL)
    dice = rng.random(len(where[0]))
    random_tokens = ordinary[rng.integers(len(ordinary), size=len(dice))]
    replaced_BL[where] = np.where(dice < 0.8, mask_id, np.where(dice < 0.9, random_tokens, ids_BL[where]))
    return replaced_BL


def _highest(scores_BL: NDArray[np.float32], eligible_BL: Mask, count_B: NDArray[np.int64]) -> Mask:
    """The `count_B` eligible positions of highest score."""
    order_BL = np.argsort(np.where(eligible_BL, -scores_BL, np.inf), axis=1)
    chosen_BL = np.zeros_like(eligible_BL)
    np.put_along_axis(chosen_BL, order_BL, np.arange(eligible_BL.shape[1]) < count_B[:, None], axis=1)
    return chosen_BL


def _budget(eligible_BL: Mask, rate: float) -> NDArray[np.int64]:
    return _at_least_one(np.rint(eligible_BL.sum(axis=1) * rate).astype(np.int64), eligible_BL)


def _at_least_one(count_B: NDArray[np.int64], eligible_BL: Mask) -> NDArray[np.int64]:
    return np.maximum(count_B, eligible_BL.any(axis=1))
