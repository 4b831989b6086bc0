"""Dense retrieval: encode queries with the bi-encoder and search the index with their vectors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stillhouse.core.artifacts import MANIFEST
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.models.settings import InferenceConfig
from stillhouse.search.documents import Ranking
from stillhouse.search.vector_index import CutVectors, VectorIndex, cut

if TYPE_CHECKING:
    from stillhouse.models.encoder import BiEncoder  # imports transformers, which would delay the first answer
    from stillhouse.models.query_encoder import TextEncoder
    from stillhouse.search.filtered import FilteredIndex
    from stillhouse.search.hybrid import HybridSearch

MEASURED_ON = 1000
"""Queries on which the recall of an index is measured."""


def open_index(folder: Path, corpus: Corpus) -> VectorIndex:
    """The index in a folder; refuses one that `check_index` refuses."""
    index = VectorIndex(folder)
    check_index(index, corpus)
    return index


def check_index(index: VectorIndex, corpus: Corpus) -> None:
    """Refuse an index whose ids are not the corpus's passages in the same order."""
    if index.passage_ids.digest != corpus.passage_ids.digest:
        raise InputError("the index holds other passages than the corpus; run `stillhouse index` with this corpus")


def check_width(encoder: BiEncoder | TextEncoder, index: VectorIndex) -> None:
    """Refuse a model with another vector width than the model that made the index."""
    if encoder.width != index.model_width:
        raise InputError(
            f"the model's vectors have {encoder.width} dimensions, but the index was made by a model with "
            f"{index.model_width}; run `stillhouse index` with this model"
        )


def query_vectors(
    encoder: BiEncoder, index: VectorIndex, texts: Sequence[str], context: Context, config: InferenceConfig
) -> NDArray[np.float32]:
    """The vectors [Q, D] of queries, cut to the index's width.

    A query is truncated to the model's `query_length`; an empty one consists of special tokens alone. Raises
    `InputError` for an index of another width and for a vector that is not finite.
    """
    from stillhouse.models.encoder import encode

    check_width(encoder, index)
    vectors_QD = encode(encoder, encoder.queries(texts), context, "queries", config)
    refuse_not_finite(vectors_QD, texts)
    return cut(vectors_QD, index.width, encoder.settings.normalize)


def retrieve(
    encoder: BiEncoder,
    index: VectorIndex,
    texts: Sequence[str],
    depth: int,
    context: Context,
    config: InferenceConfig,
    hybrid: HybridSearch | None = None,
) -> Ranking:
    """Passage rows int32 [Q, K] and scores float32 [Q, K] of each query text, best first, padded with -1.

    K is `depth`, or the number of passages if that is smaller. With `hybrid`, which is opened on the same index, BM25
    ranks too and the scores are fused. Raises `InputError` as `query_vectors` does.
    """
    return ranked(index, hybrid, texts, query_vectors(encoder, index, texts, context, config), depth, context)


def ranked(
    index: VectorIndex | FilteredIndex,
    hybrid: HybridSearch | None,
    texts: Sequence[str],
    vectors_QD: NDArray[np.float32],
    depth: int,
    context: Context,
) -> Ranking:
    """As `retrieve`, with the vectors of the queries, cut to the index's width."""
    depth = min(depth, len(index))
    gpu = isinstance(index, VectorIndex) and searches_on_gpu(index, depth, context)
    if hybrid is None or hybrid.both is None or not depth:
        return index.search(vectors_QD, depth, gpu=gpu)
    return hybrid.both.search(hybrid.fusion, texts, vectors_QD, depth, gpu)


def searches_on_gpu(index: VectorIndex, depth: int, context: Context) -> bool:
    """Whether to search an index on a GPU: a flat index if there is a GPU, others only with `--device cuda`.

    If faiss cannot search it there, the log says why.
    """
    asked = context.device == "cuda" or (index.kind == "flat" and context.torch_device().type == "cuda")
    refused = index.refused_by_gpu(depth) if asked else ""
    if refused:
        context.log(f"faiss searches this {index.kind} index on the CPU: {refused}")
    return asked and not refused


def time_queries(
    encoder: BiEncoder,
    index: VectorIndex,
    texts: Sequence[str],
    depth: int,
    context: Context,
    config: InferenceConfig,
    hybrid: HybridSearch | None = None,
) -> dict[str, float]:
    """Milliseconds from a query's text to its ranked passages, one query after the other: `median` and `p95`.

    The model is prepared once and the first query is answered once as a warm-up, so the times exclude what a service
    does only when it starts. Raises `InputError` if there is no query.
    """
    from stillhouse.models.encoder import inference

    if not texts:
        raise InputError("latency_queries: the corpus has no test query to time; leave it at 0")
    alone = replace(context, quiet=True)
    took = []
    with inference(encoder, alone, config):  # packs the weights once rather than for every answer
        retrieve(encoder, index, texts[:1], depth, alone, config, hybrid)
        for text in texts:
            started = time.perf_counter()
            retrieve(encoder, index, [text], depth, alone, config, hybrid)
            took.append(1000 * (time.perf_counter() - started))
    return {name: round(float(np.quantile(took, at)), 3) for name, at in (("median", 0.5), ("p95", 0.95))}


def folder_bytes(folder: Path) -> int:
    """The size of an index's files in bytes, without the manifest."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)


def held_out_vectors(
    encoder: BiEncoder, corpus: Corpus, vectors: CutVectors, context: Context, config: InferenceConfig
) -> tuple[NDArray[np.float32], str]:
    """Vectors [Q, D] to measure an index with, cut to its width, and a name for what they are.

    They belong to at most 1,000 dev and test queries, drawn with a fixed seed, or to passages if there are no such
    queries.
    """
    from stillhouse.models.encoder import encode

    rng = np.random.default_rng(0)
    texts = list(corpus.queries.loc[corpus.queries["split"].isin(("dev", "test")), "text"])
    if not texts:
        return vectors.rows(_drawn(len(vectors), rng)), "passages"
    chosen = [texts[number] for number in _drawn(len(texts), rng)]
    vectors_QD = encode(encoder, encoder.queries(chosen), context, "queries", config)
    refuse_not_finite(vectors_QD, chosen)
    return cut(vectors_QD, vectors.width, encoder.settings.normalize), "held-out queries"


def _drawn(number: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.sort(rng.choice(number, min(MEASURED_ON, number), replace=False))


def refuse_not_finite(vectors_QD: NDArray[np.float32], texts: Sequence[str]) -> None:
    bad = ~np.isfinite(vectors_QD).all(axis=1)
    if bad.any():
        raise InputError(f"the vector of the query {texts[int(np.argmax(bad))]!r} is not finite: the model is damaged")
