"""Dense retrieval: queries through the bi-encoder, their vectors through the index."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError
from stillhouse.retrieval.encoder import BiEncoder, encode
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.retrieval.vector_index import VectorIndex


def check_index(index: VectorIndex, corpus: Corpus) -> None:
    """Refuses an index whose ids are not the corpus's passages, in order."""
    if list(index.passage_ids) != list(corpus.passages["passage_id"]):
        raise InputError("the index holds other passages than the corpus; run `stillhouse index` with this corpus")


def retrieve(
    encoder: BiEncoder,
    index: VectorIndex,
    texts: Sequence[str],
    depth: int,
    context: Context,
    config: InferenceConfig,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Passage rows int32 [Q, K] and scores float32 [Q, K] of each query text, best first."""
    vectors_QD = encode(encoder, encoder.queries(texts), context, "queries", config)
    return index.search(vectors_QD, depth)
