"""The average of two models' weights, as in WiSE-FT and LM-Cocktail: start · (1 - alpha) + trained · alpha.

A model that fine-tuning improves on its own data often gets worse elsewhere. The averages trade one for the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.models.encoder import BiEncoder, encode
from stillhouse.search.corpus_encoding import encode_corpus, tokenizer_digest
from stillhouse.search.settings import EncodingConfig
from stillhouse.training.dev_ranking import DevCandidates, retriever_scores

State = Mapping[str, Tensor]
REMEDY = "give the encoder that the training started from, and the retriever that it made"


def averaged(start: State, trained: State, alpha: float) -> dict[str, Tensor]:
    """Return start · (1 - alpha) + trained · alpha of all floating tensors, computed in float32.

    Other tensors are taken from `trained`. At 0 and 1 the result equals one of the two bit for bit. Both states have
    the same names and shapes (`refuse_unlike`).
    """
    assert 0 <= alpha <= 1, alpha
    if alpha in (0.0, 1.0):
        return dict(trained if alpha else start)
    return {
        name: (start[name].float() * (1 - alpha) + value.float() * alpha).to(value.dtype)
        if value.is_floating_point()
        else value
        for name, value in trained.items()
    }


def rank_averages(
    encoder: BiEncoder,
    start: State,
    trained: State,
    alphas: Sequence[float],
    candidates: DevCandidates,
    corpus: Corpus,
    context: Context,
    config: EncodingConfig,
) -> dict[float, pd.DataFrame]:
    """How each average ranks dev queries: `DevCandidates.measured` by alpha. `encoder` keeps the last average.

    Passages' vectors go through the cache that `index` uses. It mostly holds the vectors of both ends already, and the
    chosen average need not be encoded again.
    """
    figures = {}
    for alpha in alphas:
        encoder.load_state_dict(averaged(start, trained, alpha))
        what = f"alpha {alpha:g}, queries"
        queries_QD = encode(encoder, encoder.texts(list(candidates.texts), "query"), context, what, config)
        found = encode_corpus(encoder, corpus, context, config, rows=candidates.passages.astype(np.int64))
        passages_RD = found.embeddings.rows(np.arange(len(found.embeddings)))
        figures[alpha] = candidates.measured(retriever_scores(candidates, queries_QD, passages_RD))
    return figures


def refuse_unlike(start: BiEncoder, trained: BiEncoder, folders: tuple[Path, Path]) -> None:
    """Raises `InputError` for models that differ in towers, pooling, prompts, tokenizer, shapes or integer tensors.

    `folders` are the folders that they were loaded from.
    """
    names = "{} and {}".format(*folders)
    for setting in ("towers", "pooling", "query_prompt", "passage_prompt"):
        one, other = getattr(start.settings, setting), getattr(trained.settings, setting)
        if one != other:
            raise InputError(f"{names} differ in their {setting} ({one!r} and {other!r}); {REMEDY}")
    if tokenizer_digest(start.tokenizer) != tokenizer_digest(trained.tokenizer):
        raise InputError(f"{names} differ in their tokenizers; {REMEDY}")
    one, other = start.state_dict(), trained.state_dict()
    for name in sorted(one.keys() | other.keys()):
        shapes = [tuple(state[name].shape) if name in state else "missing" for state in (one, other)]
        if shapes[0] != shapes[1]:
            raise InputError(f"{names} differ in shape: {name} is {shapes[0]} and {shapes[1]}; {REMEDY}")
        if not one[name].is_floating_point() and not torch.equal(one[name], other[name]):
            raise InputError(f"{names} differ in {name}, whose integers cannot be averaged; {REMEDY}")
