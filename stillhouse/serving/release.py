"""One open release: a model, its index, the corpus and the lexical index, with matching digests.

Its passages may instead be searched in a store, by the release's own encoder.

Shape suffixes: Q queries, K ranks, D width.
"""

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from stillhouse.core.artifacts import model_manifest, read_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.sources.rows import Value
from stillhouse.corpus.store import Corpus
from stillhouse.models.acceleration.device import computed_in
from stillhouse.models.acceleration.memory import release_freed_memory
from stillhouse.models.query_encoder import PlainBert, TextEncoder, open_passage_encoder, open_query_encoder
from stillhouse.releases.tags import identity_of
from stillhouse.search.documents import Ranking, best_of_documents, has_documents
from stillhouse.search.hybrid import Fusion, HybridSearch, read_hybrid
from stillhouse.search.searcher import best, check_width, open_index, refuse_not_finite, refuse_unfit
from stillhouse.search.vector_index import cut
from stillhouse.serving.passages import Passages
from stillhouse.serving.stores.searcher import StoreSearcher
from stillhouse.serving.stores.store import Store

NAME_LENGTH = 12
"""Hexadecimal digits of a release's name: the first ones of its identity."""
WARMED_WITH = "what is this about"


@dataclass(frozen=True)
class Ranked:
    """How to rank a query. `bm25` is BM25's share of a convex combination; None = as the release chose.

    `where`, conditions on fields as JSON, restricts the passages; "" = no restriction. With `documents`, `top` counts
    documents, each at its best passage; None = if the corpus was split or is judged by documents.
    """

    top: int = 10
    bm25: float | None = None
    where: str = ""
    documents: bool | None = None


@dataclass(frozen=True)
class Found:
    """Rows of passages, best first, and their scores."""

    rows: list[int]
    scores: list[float]


class Release:
    """The part of the service that answers. Its files are read or mapped on opening, so replacing them does not change
    its answers.

    `folders` are `retriever`, `index` and `corpus`, and optionally `hybrid` and `reranker`. Vectors of queries are
    computed in fp32, those of passages in `precision`, "auto" or "fp32". Raises `InputError` for a missing or damaged
    folder, and for one that was not made from the others. Only one thread may call `encode` and `rank` at a time.
    """

    def __init__(self, folders: Mapping[str, Path], context: Context, precision: str = "fp32") -> None:
        self._folders, self._context = folders, context
        self.digests = {name: model_manifest(folder, verify=False).digest for name, folder in folders.items()}
        refuse_unfit(folders)
        self.reranks = "reranker" in folders
        if self.reranks and read_manifest(folders["reranker"]).inputs.get("corpus") != self.digests["corpus"]:
            raise InputError(
                f"{folders['reranker']} was trained on another corpus than {folders['corpus']}; run `stillhouse "
                "train-reranker` with this one, or leave the folder out of the release"
            )
        self.identity = identity_of({name: {"digest": value} for name, value in self.digests.items()})
        self.name = self.identity[:NAME_LENGTH]
        corpus = Corpus.open(folders["corpus"])
        self._queries = open_query_encoder(folders["retriever"], context)
        dtype = computed_in(precision, context.torch_device())
        self._passages = open_passage_encoder(folders["retriever"], self._queries, context, dtype)
        self.index = open_index(folders["index"], corpus)
        check_width(self._queries, self.index)
        self.normalize = self._queries.normalize
        self._hybrid = HybridSearch(Fusion(), None)
        if "hybrid" in folders:
            self._hybrid = read_hybrid(folders["hybrid"], self.index, self._queries)
        self.passages = self._read(corpus)
        self.titles = corpus.titles
        self._has_documents = has_documents(corpus)
        for name, folder in folders.items():
            if model_manifest(folder, verify=False).digest != self.digests[name]:
                raise InputError(f"{folder} was replaced while it was being opened; try again")
        self.origin: Mapping[str, Any] = {}

    def _read(self, corpus: Corpus) -> Passages:
        return Passages(corpus)

    @property
    def has_bm25(self) -> bool:
        return self._hybrid.both is not None

    @cached_property
    def _reranker(self) -> Any:
        from stillhouse.serving.pair_scores import PairScores

        return PairScores(self._folders["reranker"], self._context)

    def warm(self) -> None:
        """Answers once in every way, so that the first client does not wait for one-time work."""
        self.rank([WARMED_WITH], self.encode(self.tokenize([WARMED_WITH], "query"), "query"), [Ranked()])
        self.encode(self.tokenize([WARMED_WITH], "passage"), "passage")
        if self.reranks:
            self.score_pairs(WARMED_WITH, [WARMED_WITH])
        release_freed_memory()  # what opening took: 30 MB with a small model

    def _encoder_of(self, role: str) -> TextEncoder:
        return self._queries if role == "query" else self._passages

    def tokenize(self, texts: Sequence[str], role: str) -> list[list[int]]:
        """The token ids of texts of a role, `query` or `passage`, truncated to what the model reads."""
        return self._encoder_of(role).tokenize(texts)

    def encode(self, ids: Sequence[Sequence[int]], role: str) -> NDArray[np.float32]:
        """Vectors float32 [Q, D] of tokenized texts, as the index compares them.

        Raises `InputError` if one is not a number.
        """
        vectors_QD = self._encoder_of(role).vectors(ids)
        refuse_not_finite(vectors_QD, ["(not shown)"] * len(ids))
        return cut(vectors_QD, self.index.width, self.normalize)

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors float32 [B, D] of passages as `passage_text` makes them."""
        return self.encode(self.tokenize(texts, "passage"), "passage")

    def questions(self, most: int) -> list[str]:
        """The first questions of its corpus. They are not read before, since a service needs none."""
        return Corpus.open(self._folders["corpus"]).queries["text"].head(most).tolist()

    def rank(self, texts: Sequence[str], vectors_QD: NDArray[np.float32], asked: Sequence[Ranked]) -> list[Found]:
        """The best passages of each query, equal to `Searcher.search` with default options."""
        found: list[Found] = [Found([], [])] * len(texts)
        alike: defaultdict[Ranked, list[int]] = defaultdict(list)
        for number, how in enumerate(asked):
            alike[how].append(number)
        for how, members in alike.items():
            rows_QK, scores_QK = self._ranked([texts[number] for number in members], vectors_QD[members], how)
            for number, rows, scores in zip(members, rows_QK.tolist(), scores_QK.tolist()):
                kept = [place for place, row in enumerate(rows) if row >= 0]
                found[number] = Found([rows[place] for place in kept], [scores[place] for place in kept])
        return found

    def _ranked(self, texts: Sequence[str], vectors_QD: NDArray[np.float32], how: Ranked) -> Ranking:
        hybrid = self._hybrid
        if how.bm25 is not None:
            fusion = Fusion("convex", how.bm25, 1.0 - how.bm25, hybrid.fusion.depth)
            hybrid = HybridSearch(fusion, hybrid.both if how.bm25 else None)
        rows_F = self.passages.rows_within(how.where) if how.where else None
        of = self.passages.documents_of if self.by_document(how) else None
        return best(self.index, hybrid, texts, vectors_QD, how.top, self._context, rows_F, of)

    def by_document(self, how: Ranked) -> bool:
        return self._has_documents if how.documents is None else how.documents

    def score_pairs(self, query: str, texts: Sequence[str]) -> tuple[list[float], int]:
        """The cross-encoder's score of the query with each text, and the number of tokens. Only if `reranks`."""
        return self._reranker(query, texts)

    def about(self) -> dict[str, Any]:
        """The content of `/info` about it."""
        bf16 = isinstance(self._passages, PlainBert) and self._passages.dtype == torch.bfloat16
        return {
            "release": self.name,
            "identity": self.identity,
            **self.origin,
            "digests": self.digests,
            "passages": len(self.passages),
            "width": self.index.width,
            "index": {"kind": self.index.kind, "recall@10": self.index.recall(10)},
            "ranking": str(self._hybrid.fusion),
            "bm25": self.has_bm25,
            "reranker": self.reranks,
            "precision": {"queries": "fp32", "passages": "bf16" if bf16 else "fp32"},
        }


class StorePassages(Passages):
    """Passages of a store. Where those of a corpus have numbers, these are whole rows."""

    def __init__(self, corpus: Corpus) -> None:
        self._count, self.field_types = corpus.passage_count, pa.schema([])
        self.judges_whole_passages = corpus.judges_whole_passages

    def __len__(self) -> int:
        return self._count

    def at(self, rows: Sequence[Any], *columns: str) -> list[dict[str, Any]]:
        return [{name: row[name] for name in columns} for row in rows]

    def fields_at(self, rows: Sequence[Any]) -> list[dict[str, Value]]:
        return [row["fields"] for row in rows]


class StoreRelease(Release):
    """Answers from the release in use in `store`, without BM25 and filters.

    Raises `InputError` as `Release` and `StoreSearcher` do.
    """

    def __init__(self, folders: Mapping[str, Path], store: Store, context: Context, precision: str = "fp32") -> None:
        # The fusion describes another search than that of the store.
        own = {name: folder for name, folder in folders.items() if name != "hybrid"}
        super().__init__(own, context, precision)
        self.store = store
        self.searcher = StoreSearcher(store, self.digests["retriever"], self._queries, self._passages)

    def _read(self, corpus: Corpus) -> Passages:
        return StorePassages(corpus)

    def rank(self, texts: Sequence[str], vectors_QD: NDArray[np.float32], asked: Sequence[Ranked]) -> list[Found]:
        self.searcher.follow()
        return [self._found(vector_D, how) for vector_D, how in zip(vectors_QD, asked)]

    def _found(self, vector_D: NDArray[np.float32], how: Ranked) -> Found:
        seen: list[tuple[Any, float]] = []  # whole rows, where `Found` has the numbers of rows

        def ranked(depth: int, _: Any = None) -> Ranking:
            seen[:] = self.searcher.nearest(vector_D, depth)
            scores = np.array([[score for _, score in seen]], dtype=np.float32)
            return np.arange(len(seen), dtype=np.int32)[None], scores

        def documents_of(places: list[int]) -> list[str]:
            return self.passages.documents_of([seen[place][0] for place in places])

        if self.by_document(how):
            places_1T, scores_1T = best_of_documents(ranked, documents_of, 1, how.top, sys.maxsize)
        else:
            places_1T, scores_1T = ranked(how.top)
        kept = [place for place in places_1T[0] if place >= 0]
        return Found([seen[place][0] for place in kept], scores_1T[0, : len(kept)].tolist())

    def about(self) -> dict[str, Any]:
        """The content of `/info` about it."""
        place = {"address": f"{self.store.address}#{self.store.name}", "table": self.searcher.table}
        published = self.searcher.record["passages"]
        return super().about() | {"store": place, "passages": published, "index": None, "ranking": "the store's"}
