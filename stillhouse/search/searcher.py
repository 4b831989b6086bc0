"""Dense retrieval: encodes queries with the bi-encoder, searches the index with their vectors and shows passages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from stillhouse.core import context
from stillhouse.core.artifacts import model_manifest, read_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.fields import Where, rows_where
from stillhouse.corpus.passage_ids import documents_in
from stillhouse.corpus.sources.rows import Value
from stillhouse.corpus.store import Corpus
from stillhouse.models.query_encoder import open_query_encoder
from stillhouse.models.settings import InferenceConfig
from stillhouse.search.documents import Ranking, best_of_documents, documents_of, has_documents
from stillhouse.search.filtered import FilteredIndex
from stillhouse.search.vector_index import CutVectors, VectorIndex, cut

if TYPE_CHECKING:
    from stillhouse.models.encoder import BiEncoder  # imports transformers, which would delay the first answer
    from stillhouse.models.query_encoder import TextEncoder
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


def best(
    index: VectorIndex,
    hybrid: HybridSearch | None,
    texts: Sequence[str],
    vectors_QD: NDArray[np.float32],
    top: int,
    context: Context,
    rows_F: NDArray[np.int32] | None = None,
    documents_of: Callable[[list[int]], Sequence[str]] | None = None,
) -> Ranking:
    """As `ranked`, among the passages `rows_F` alone if given; with `documents_of`, each document's best passage."""
    among: VectorIndex | FilteredIndex = index
    if rows_F is not None:
        among, hybrid = FilteredIndex(index, rows_F), hybrid and hybrid.among(rows_F)

    def search(depth: int, queries_W: NDArray[np.integer]) -> Ranking:
        asked = [texts[number] for number in queries_W.tolist()]
        return ranked(among, hybrid, asked, vectors_QD[queries_W], depth, context)

    if documents_of is None:
        return ranked(among, hybrid, texts, vectors_QD, top, context)
    return best_of_documents(search, documents_of, len(texts), top, len(among))


def searches_on_gpu(index: VectorIndex, depth: int, context: Context) -> bool:
    """Whether to search an index on a GPU: a flat index if there is a GPU, others only with `--device cuda`.

    If faiss cannot search it there, the log says why.
    """
    asked = context.device == "cuda" or (index.kind == "flat" and context.torch_device().type == "cuda")
    refused = index.refused_by_gpu(depth) if asked else ""
    if refused:
        context.log(f"faiss searches this {index.kind} index on the CPU: {refused}")
    return asked and not refused


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


@dataclass(frozen=True)
class Hit:
    """One passage of an answer. `score` is the similarity of question and passage, a cosine for cosine retrievers.

    In hybrid search it is a weighted sum of the BM25 score, the similarity and the score of late interaction.
    """

    rank: int
    score: float
    passage_id: str
    title: str
    text: str
    fields: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class DocumentHit(Hit):
    """One document of an answer, shown by its best passage. `document_id` is that of `documents_in`."""

    document_id: str = ""
    section: str = ""


class Searcher:
    """A corpus, its index and its retriever, loaded once for many questions. With `hybrid`, BM25 ranks too.

    Open it again after another run has replaced the folders. Raises `InputError` for a missing or damaged folder, and
    for an index or a hybrid that was made from another corpus or by another retriever.
    """

    def __init__(
        self, corpus: Path, retriever: Path, index: Path, context: Context, hybrid: Path | None = None
    ) -> None:
        folders = {"corpus": corpus, "retriever": retriever, "index": index}
        refuse_unfit(folders | ({"hybrid": hybrid} if hybrid else {}))
        self._context = context
        self._corpus = Corpus.open(corpus)
        self._encoder = open_query_encoder(retriever, context)
        self._index = open_index(index, self._corpus)
        check_width(self._encoder, self._index)
        self._hybrid: HybridSearch | None = None
        if hybrid:
            from stillhouse.search.hybrid import read_hybrid  # imports bm25s, which dense search does not need

            with doing("loading BM25"):
                self._hybrid = read_hybrid(hybrid, self._index, self._encoder)
        self._by_document = has_documents(self._corpus)

    @classmethod
    def open(
        cls,
        corpus: str | PathLike[str],
        retriever: str | PathLike[str],
        index: str | PathLike[str],
        hybrid: str | PathLike[str] | None = None,
    ) -> Searcher:
        """Open folders that steps wrote; compute on `$STILLHOUSE_DEVICE`, or by default on a GPU if there is one.

        Raises `InputError` as above.
        """
        context.hush_libraries()
        where = Context(work=context.work_root(), device=context.device(), quiet=True)
        return cls(Path(corpus), Path(retriever), Path(index), where, Path(hybrid) if hybrid else None)

    def search(self, question: str, top: int, where: Where | None = None, documents: bool | None = None) -> list[Hit]:
        """The `top` best passages, best first; fewer if the corpus has or an approximate index finds fewer.

        With `where`, only passages whose fields meet these conditions (`stillhouse.corpus.fields`), which are searched
        exactly. With `documents`, `DocumentHit`s of the best documents; by default that is so for a corpus whose
        passages were split or whose qrels name documents.

        Raises `InputError` for a question without words, and for a condition that fits no field.
        """
        if not question.strip():
            raise InputError("the question is empty; type a question")
        vectors_QD = self._encoder.vectors(self._encoder.tokenize([question]))
        refuse_not_finite(vectors_QD, [question])
        vectors_QD = cut(vectors_QD, self._index.width, self._encoder.normalize)
        rows_F = rows_where(self._corpus.fields, where) if where else None
        by_document = self._by_document if documents is None else documents
        of = partial(documents_of, self._corpus) if by_document else None
        own = self._index, self._hybrid, [question], vectors_QD
        rows_QK, scores_QK = best(*own, top, self._context, rows_F, of)
        rows = rows_QK[0][rows_QK[0] >= 0]
        found = self._corpus.passage_table(rows, "passage_id", "title", "text", "article_id", "section").to_pylist()
        fields = self._corpus.fields_at(rows)
        documents_K = documents_in(found, fields if self._corpus.judges_whole_passages else None)
        hits: list[Hit] = []
        columns = zip(scores_QK[0].tolist(), found, fields, documents_K)
        for rank, (score, passage, known, document) in enumerate(columns, 1):
            section = passage.pop("section")
            del passage["article_id"]
            hit = Hit(rank, score, **passage, fields=known)
            hits.append(DocumentHit(**vars(hit), document_id=document, section=section) if by_document else hit)
        return hits


@doing("verifying the digests of its inputs")
def refuse_unfit(folders: Mapping[str, Path]) -> None:
    """Refuse damaged folders, and an index or a hybrid that was made from other folders than these."""
    corpus, index = (read_manifest(folders[name]) for name in ("corpus", "index"))
    sources = {"corpus": corpus, "retriever": model_manifest(folders["retriever"])}
    made = {"index": index}
    if "hybrid" in folders:
        made["hybrid"] = read_manifest(folders["hybrid"])
    for what, manifest in made.items():
        for name, source in sources.items():
            if manifest.inputs.get(name) != source.digest:
                remedy = f"run `stillhouse {what}` with this one"
                raise InputError(f"{folders[what]} was made from another {name} than {folders[name]}; {remedy}")
        sources[what] = manifest
