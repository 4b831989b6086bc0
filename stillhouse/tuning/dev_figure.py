"""The figure of a trial: how well its retriever ranks all passages for the dev questions. Never reads test."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError
from stillhouse.retrieval.index.vector_index import VectorIndex
from stillhouse.retrieval.mining.relevance import JudgedQueries
from stillhouse.retrieval.models.encoder import BiEncoder
from stillhouse.retrieval.search.dense import check_index, query_vectors, searches_on_gpu
from stillhouse.retrieval.settings import InferenceConfig

MEASURE = "RR@10"
SPLIT = "dev"
DEPTH = 100
"""Passages to retrieve: more than 10, because passages that are neither right nor wrong are skipped."""


@dataclass(frozen=True)
class DevFigure:
    """RR@10 of each dev question, float64 [Q], in the order of `query_ids`."""

    query_ids: tuple[str, ...]
    ranks_Q: NDArray[np.float64]

    @property
    def mean(self) -> float:
        return float(self.ranks_Q.mean())


def measure_dev(corpus: Path, retriever: Path, index: Path, context: Context) -> DevFigure:
    """Rank passages for the judged dev questions. Raises `InputError` if there are none."""
    opened, encoder, vectors = Corpus.open(corpus), BiEncoder.load(retriever), VectorIndex(index)
    check_index(vectors, opened)
    judged = JudgedQueries(opened, SPLIT)
    if not len(judged):
        raise InputError(f"{corpus} has no judged dev questions for the search; ingest with a dev_fraction above 0")
    vectors_QD = query_vectors(encoder, vectors, judged.texts, context, InferenceConfig())
    rows_QK, _ = vectors.search(vectors_QD, DEPTH, gpu=searches_on_gpu(vectors, DEPTH, context))
    return DevFigure(tuple(judged.query_ids), judged.reciprocal_ranks(rows_QK))
