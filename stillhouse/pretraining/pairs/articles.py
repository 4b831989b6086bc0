"""The sentences that queries of pair tasks are drawn from, as arrays.

Shape suffixes: N all passages, S sentences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.errors import InputError
from stillhouse.corpus.articles import offsets_of
from stillhouse.pretraining.pairs.structure import PassageStructure
from stillhouse.pretraining.tokens import TokenCache


@dataclass(frozen=True)
class Sentences:
    """Sentences with an ordinary token, without titles: tokens `begins[s]` to `ends[s]` (int64 [S]) of the cache.

    Passage i has the sentences `offsets[i]` to `offsets[i + 1]` (int64 [N + 1]).
    """

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def counts(self) -> NDArray[np.int64]:
        """The number of sentences per passage, int64 [N]."""
        return np.diff(self.offsets)


def require_structure(cache: TokenCache) -> PassageStructure:
    """The cache's structure. Raises `InputError` if the cache was written without it."""
    if cache.structure is None:
        raise InputError("the tokens have no sentences and articles; run `stillhouse tokenize` again")
    return cache.structure


def ordinary_sentences(cache: TokenCache) -> Sentences:
    """The sentences of every passage's text that contain a non-special token ([UNK] is special)."""
    structure = require_structure(cache)
    begins = np.flatnonzero(structure.sentence_starts)
    if not len(begins):
        return Sentences(begins, begins, np.zeros(len(cache) + 1, dtype=np.int64))
    ends = np.append(begins[1:], len(cache.ids))
    ordinary = np.logical_or.reduceat(~np.isin(cache.ids, cache.specials.all), begins)
    passage = np.searchsorted(cache.offsets, begins, side="right") - 1
    in_text = begins >= cache.offsets[passage] + structure.title_lengths[passage]
    kept = ordinary & in_text
    return Sentences(begins[kept], ends[kept], offsets_of(passage[kept], len(cache)))
