"""A token cache of random tokens, for measurements that depend on the shape of passages and not on their text."""

from __future__ import annotations

import numpy as np

from stillhouse.pretraining.pairs.structure import PassageStructure
from stillhouse.pretraining.tokens import SpecialTokens, TokenCache

VOCABULARY, SENTENCE = 30_522, 24
"""The size of BERT's vocabulary, and the tokens of a sentence."""
SPECIALS = SpecialTokens(cls=101, sep=102, pad=0, mask=103, all=(0, 100, 101, 102, 103))


def random_passages(batches: int, batch: int, length: int) -> TokenCache:
    """Passages of random tokens, as batches of about equally long ones have them: 90 to 100 % of `length`.

    The first of each batch has the full length, so that all batches have one shape. Sentences have 24 tokens, articles
    four passages and links to two others.
    """
    rng = np.random.default_rng(0)
    lengths_N = rng.integers(int(0.9 * length), length + 1, batches * batch) - 2
    lengths_N[::batch] = length - 2
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_N)])
    ids_T = rng.integers(1000, VOCABULARY, size=offsets[-1]).astype(np.int32)
    place_T = np.arange(len(ids_T)) - np.repeat(offsets[:-1], lengths_N)
    word_starts_T = (rng.random(len(ids_T)) < 0.75) | (place_T == 0)
    importance_T = rng.normal(5, 2, len(ids_T)).astype(np.float32)
    passages_N = np.arange(len(lengths_N), dtype=np.int32)
    articles = int(passages_N[-1]) // 4 + 1
    numbers = np.arange(articles, dtype=np.int32)
    links = np.concatenate([np.stack([numbers, (numbers + step) % articles], axis=1) for step in (1, 2)])
    structure = PassageStructure(
        place_T % SENTENCE == 0, np.zeros(len(lengths_N), np.int32), passages_N // 4, passages_N % 4 == 0, links
    )
    return TokenCache(ids_T, offsets, word_starts_T, SPECIALS, importance_T, structure)
