"""Token caches of random passages of very different lengths, with sentences, articles and links for pair tasks;
and a small BERT for them."""

from __future__ import annotations

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM

from stillhouse.pretraining.pairs.structure import PassageStructure
from stillhouse.pretraining.tokens import SpecialTokens, TokenCache

VOCABULARY, SENTENCE = 400, 6
"""The number of token ids, and the tokens of a sentence."""
SPECIALS = SpecialTokens(cls=2, sep=3, pad=0, mask=4, all=(0, 1, 2, 3, 4))


def varied_passages(count: int, longest: int, seed: int = 0) -> TokenCache:
    """Passages of 5 to `longest` tokens with [CLS] and [SEP]; some words are far more frequent than others.

    Articles have four passages, and link to two others.
    """
    rng = np.random.default_rng(seed)
    lengths_N = rng.integers(3, longest - 1, count)
    lengths_N[::8] = longest - 2
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths_N)])
    ids_T = (5 + (VOCABULARY - 5) * rng.random(offsets[-1]) ** 3).astype(np.int32)
    place_T = np.arange(len(ids_T)) - np.repeat(offsets[:-1], lengths_N)
    word_starts_T = (rng.random(len(ids_T)) < 0.75) | (place_T == 0)
    importance_T = rng.normal(5, 2, len(ids_T)).astype(np.float32)
    passages_N = np.arange(count, dtype=np.int32)
    articles = -(-count // 4)
    numbers = np.arange(articles, dtype=np.int32)
    links = np.concatenate([np.stack([numbers, (numbers + step) % articles], axis=1) for step in (1, 2)])
    structure = PassageStructure(
        place_T % SENTENCE == 0, np.zeros(count, np.int32), passages_N // 4, passages_N % 4 == 0, links
    )
    return TokenCache(ids_T, offsets, word_starts_T, SPECIALS, importance_T, structure)


def tiny_bert(layers: int = 2, dropout: float = 0.0) -> BertForMaskedLM:
    """A BERT of width 64 with four heads; its parameters depend on the number of layers alone."""
    torch.manual_seed(layers)
    sizes = {"hidden_size": 64, "num_hidden_layers": layers, "num_attention_heads": 4, "intermediate_size": 128}
    sizes |= {"vocab_size": VOCABULARY, "max_position_embeddings": 64}
    dropped = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return BertForMaskedLM(BertConfig(**sizes, **dropped, initializer_range=0.1))
