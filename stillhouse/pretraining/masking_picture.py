"""A page that compares importance-aware with uniform masking (CDMAE Fig. 2 and 3a).

It draws masks of CDMAE Algorithm 1 many times for a sample of passages, with the function that pre-training calls, and
counts them. Uniform masking of the same number of tokens is computed exactly. The page is one HTML file without
scripts, and the same inputs give the same bytes.

Shape suffixes: B passages, L tokens including special ones and padding, E eligible tokens of the sample, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from stillhouse.core.html_page import page_template
from stillhouse.core.monitoring.activity import doing
from stillhouse.pretraining.corruption import importance_mask
from stillhouse.pretraining.tokens import TokenCache

PASSAGES = 500
DRAWS = 200
GROUPS = 10
TERMS = 10
FREQUENT = 1000
"""A token is frequent if it makes up at least one in this many."""
SHOWN = 3
COLUMNS = 26
SEED = 20


@dataclass(frozen=True)
class Masked:
    """How a sample of passages is masked.

    `ids` int64, `special` and `word_starts` bool, `importance` float32 and `share` float64 are [B, L]. `share` is the
    share of draws that mask a token; `uniform` float64 [B] is the same for any token under uniform masking.
    """

    ids: NDArray[np.int64]
    special: NDArray[np.bool_]
    word_starts: NDArray[np.bool_]
    importance: NDArray[np.float32]
    share: NDArray[np.float64]
    uniform: NDArray[np.float64]


@dataclass(frozen=True)
class Term:
    """A token of the vocabulary in the sample.

    `importance` and `uniform` are its shares of all masks; `masked` is how often an occurrence is masked.
    """

    text: str
    occurrences: int
    importance: float
    uniform: float
    masked: float


@dataclass(frozen=True)
class Piece:
    """A token of a passage as the page shows it; `shade` from 0 to 1 is its AMI's quantile in the sample."""

    text: str
    space: bool
    special: bool
    ami: float
    masked: float
    shade: float


def draw_masks(cache: TokenCache, rate: float, noise: float, max_length: int = 512) -> Masked:
    """Mask evenly spaced passages of at least two tokens, `DRAWS` times each."""
    rows = np.flatnonzero(np.diff(cache.offsets) >= 2)
    rows = rows[np.unique(np.linspace(0, len(rows) - 1, min(PASSAGES, len(rows))).astype(np.int64))]
    batch = cache.batch(rows, max_length)
    assert batch.importance is not None
    eligible_BL = ~batch.special
    rng = np.random.default_rng(SEED)
    counts_BL = np.zeros(eligible_BL.shape, dtype=np.int64)
    for _ in range(DRAWS):
        masked_BL = importance_mask(eligible_BL, batch.importance, rate, noise, rng)
        counts_BL += masked_BL
    uniform_B = masked_BL.sum(axis=1) / np.maximum(1, eligible_BL.sum(axis=1))
    return Masked(batch.ids, batch.special, batch.word_starts, batch.importance, counts_BL / DRAWS, uniform_B)


def by_importance(masked: Masked) -> list[tuple[float, float]]:
    """(mean AMI, share masked) for each tenth of the sample's tokens, least important first."""
    eligible_BL = ~masked.special
    ami_E, share_E = masked.importance[eligible_BL], masked.share[eligible_BL]
    tenths = np.array_split(np.argsort(ami_E, kind="stable"), GROUPS)
    return [(float(ami_E[part].mean()), float(share_E[part].mean())) for part in tenths if len(part)]


def terms(masked: Masked, tokenizer: PreTrainedTokenizerBase) -> list[Term]:
    """Every token of the sample, most frequent first."""
    eligible_BL = ~masked.special
    ids_E = masked.ids[eligible_BL]
    share_E = masked.share[eligible_BL]
    uniform_E = np.broadcast_to(masked.uniform[:, None], masked.ids.shape)[eligible_BL]
    occurrences_V = np.bincount(ids_E)
    masked_V, uniform_V = np.bincount(ids_E, weights=share_E), np.bincount(ids_E, weights=uniform_E)
    order = np.flatnonzero(occurrences_V)
    order = order[np.argsort(-occurrences_V[order], kind="stable")]
    names = tokenizer.convert_ids_to_tokens(order.tolist())
    total = max(1.0, float(share_E.sum()))
    return [
        Term(name, int(count), float(ours / total), float(even / total), float(ours / count))
        for name, count, ours, even in zip(names, occurrences_V[order], masked_V[order], uniform_V[order])
    ]


def extremes(found: Sequence[Term]) -> tuple[list[Term], list[Term]]:
    """The frequent tokens that are masked most often and least often."""
    least = sum(term.occurrences for term in found) / FREQUENT
    frequent = sorted((term for term in found if term.occurrences >= least), key=lambda term: (-term.masked, term.text))
    half = min(TERMS, len(frequent) // 2)
    return frequent[:half], frequent[::-1][:half]


def passages(masked: Masked, tokenizer: PreTrainedTokenizerBase) -> list[list[Piece]]:
    """A few passages of the sample, evenly spaced among those of medium length."""
    lengths_B = (~masked.special).sum(axis=1)
    ami_E = np.sort(masked.importance[~masked.special])
    medium = np.argsort(np.abs(lengths_B - np.median(lengths_B)), kind="stable")
    medium = np.sort(medium[: max(SHOWN, len(medium) // 4)])
    chosen = medium[np.unique(np.linspace(0, len(medium) - 1, min(SHOWN, len(medium))).astype(np.int64))]
    shade_BL = np.searchsorted(ami_E, masked.importance, side="right") / max(1, len(ami_E))
    return [
        [
            Piece(
                _plain(tokenizer, int(masked.ids[row, place])),
                bool(masked.word_starts[row, place]),
                bool(masked.special[row, place]),
                float(masked.importance[row, place]),
                float(masked.share[row, place]),
                float(shade_BL[row, place]),
            )
            for place in range(1, 1 + _tokens_of(masked, row))
        ]
        for row in chosen
    ]


def _tokens_of(masked: Masked, row: int) -> int:
    """The number of tokens up to the last eligible one, without [CLS]."""
    return int(np.flatnonzero(~masked.special[row]).max(initial=0))


def _plain(tokenizer: PreTrainedTokenizerBase, number: int) -> str:
    token = tokenizer.convert_ids_to_tokens(number)
    assert isinstance(token, str)
    return tokenizer.convert_tokens_to_string([token]).strip().removeprefix("##")


@doing("drawing the picture of masks")
def render(cache: TokenCache, tokenizer: PreTrainedTokenizerBase, rate: float, noise: float) -> str | None:
    """The page, or None if no passage has two tokens. Masks a share `rate` of the tokens, with noise N(0, `noise`)."""
    if not (np.diff(cache.offsets) >= 2).any():
        return None
    masked = draw_masks(cache, rate, noise)
    if masked.special.all():
        return None
    found = terms(masked, tokenizer)
    most, least = extremes(found)
    tenths = by_importance(masked)
    shown = passages(masked, tokenizer)
    top = found[:TERMS]
    eligible = int((~masked.special).sum())
    return page_template(Path(__file__).with_name("masking.html")).render(
        rate=rate,
        noise=noise,
        sampled=len(masked.ids),
        tokens=eligible,
        draws=DRAWS,
        expected=float((masked.uniform * (~masked.special).sum(axis=1)).sum() / eligible),
        tenths=tenths,
        top=top,
        widest=max((max(term.importance, term.uniform) for term in top), default=1.0),
        top_uniform=sum(term.uniform for term in top),
        top_importance=sum(term.importance for term in top),
        most=most,
        least=least,
        columns=shown[0][:COLUMNS] if shown else [],
        passages=shown,
    )
