"""Inference for texts in memory: vectors of a bi-encoder, scores of a cross-encoder."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from stillhouse.core import context
from stillhouse.core.errors import InputError
from stillhouse.models.settings import InferenceConfig

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from stillhouse.models.encoder import BiEncoder
    from stillhouse.models.pair_scores import PairScorer


def encode(
    encoder: BiEncoder, texts: Sequence[str], role: Literal["query", "passage"], *, progress: bool = False
) -> NDArray[np.float32]:
    """Encode texts: float32 (N, D), in their order, with vectors of length 1 for a cosine retriever.

    Each text follows the encoder's prompt for the role and is cut to `query_length` or `passage_length`. Give a passage
    as its title and text in the form that the corpus joins them. `progress` shows a progress bar. On one machine, a
    text's vector does not depend on the other texts, bit for bit, and equals its vector in an index of the same model.

        vectors = stillhouse.encode(stillhouse.BiEncoder.load("work/retriever"), ["who hears mice"], "query")

    Raises `InputError` for another role, and for a single text instead of a list.
    """
    from stillhouse.models.encoder import encode as encode_texts

    if role not in ("query", "passage"):
        raise InputError(f"role must be 'query' or 'passage', not {role!r}")
    if isinstance(texts, str):
        raise InputError("texts must be a list; pass a single text as [text]")
    with tempfile.TemporaryDirectory(prefix="stillhouse-") as work:
        here = context.Context(Path(work), context.device(), quiet=not progress)
        vectors_ND: NDArray[np.float32] = encode_texts(
            encoder, encoder.texts(list(texts), role), here, f"encoding: {role}", InferenceConfig()
        )
    return vectors_ND


def predict(
    cross_encoder: PairScorer, pairs: Sequence[tuple[str, str]], *, progress: bool = False
) -> NDArray[np.float32]:
    """Score (query, passage) pairs: float32 (P,), in their order, unbounded; higher is better.

    A pair that is too long loses the end of its passage. `progress` shows a progress bar.

        model = stillhouse.CrossEncoder.load("work/reranker/reranker")
        scores = stillhouse.predict(model, [("who hears mice", "Owls hear mice.")])

    Raises `InputError` for pairs that are not two texts, and for a score that is not finite.
    """
    import numpy as np

    from stillhouse.models.pair_scores import score_pairs

    for number, pair in enumerate(pairs):
        if isinstance(pair, str) or len(pair) != 2:
            raise InputError(f"pair {number} is not a query and a passage; give tuples of two texts")
    queries_P, passages_P = (np.array([pair[side] for pair in pairs], dtype=object) for side in (0, 1))
    rows_P = np.arange(len(pairs))
    with tempfile.TemporaryDirectory(prefix="stillhouse-") as work:
        here = context.Context(Path(work), context.device(), quiet=not progress)
        scores_P: NDArray[np.float32] = score_pairs(
            cross_encoder, queries_P, passages_P, rows_P, rows_P, here, "scoring", InferenceConfig()
        )
        return np.array(scores_P)
