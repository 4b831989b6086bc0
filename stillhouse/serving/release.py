"""One open release: a model, its index, the corpus and the lexical index, with matching digests.

Shape suffixes: Q queries, K ranks, D width.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from stillhouse.core.artifacts import MANIFEST, Digest, digest_file, foreign_manifest, read_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.core.open_folders import OpenFolders
from stillhouse.corpus.store import Corpus
from stillhouse.models.acceleration.memory import release_freed_memory
from stillhouse.models.acceleration.precision import computed_in
from stillhouse.models.query_encoder import PlainBert, TextEncoder, open_passage_encoder, open_query_encoder
from stillhouse.releases.tags import identity_of
from stillhouse.search.bm25 import BM25
from stillhouse.search.dense import check_index, check_width, refuse_not_finite, searches_on_gpu
from stillhouse.search.documents import Ranking, best_of_documents, has_documents
from stillhouse.search.filtered import FilteredBM25, FilteredIndex
from stillhouse.search.hybrid import Fusion, HybridIndex, read_hybrid
from stillhouse.search.searcher import refuse_unfit
from stillhouse.search.vector_index import VectorIndex, cut
from stillhouse.serving.passages import Passages

NAME_LENGTH = 12
"""Hexadecimal digits of a release's name: the first ones of its identity."""
WARMED_WITH = "what is this about"
CANARIES = 16
"""The number of canary queries: the first queries of the release's run."""
DEPTH = 10
"""How many passages of a canary query are compared."""
LEAST_OVERLAP = 0.8
"""A release with a lower overlap is refused. On another CPU, nearly equal passages swap places, which lowers it by a
few hundredths; a model other than the run's finds hardly any of the passages."""


@dataclass(frozen=True)
class Ranked:
    """How to rank a query. `bm25` is BM25's share of a convex combination; None = as the release chose.

    `id_prefix`, `article` and `where`, conditions on fields as JSON, restrict the passages; "" = no restriction. With
    `documents`, `top` counts documents, each at its best passage; None = if the corpus was split or is judged by
    documents.
    """

    top: int = 10
    bm25: float | None = None
    id_prefix: str = ""
    article: str = ""
    where: str = ""
    documents: bool | None = None


@dataclass(frozen=True)
class Found:
    """Rows of passages, best first, and their scores."""

    rows: list[int]
    scores: list[float]


class Release:
    """The part of the service that answers. Its files are opened once and stay open, so replacing them does not change
    its answers.

    `folders` are `retriever`, `index` and `corpus`, and optionally `hybrid`, `reranker` and `run`. `digest` returns the
    SHA-256 of a file. Vectors of queries are computed in fp32, those of passages in `precision`, "auto" or "fp32".
    Raises `InputError` for a missing or damaged folder, and for one that was not made from the others. Only one thread
    may call `encode` and `rank` at a time.
    """

    filters = True
    """Whether an answer can be restricted to some passages."""

    def __init__(
        self, folders: Mapping[str, Path], context: Context, digest: Digest = digest_file, precision: str = "fp32"
    ) -> None:
        self._held, self._context = OpenFolders(folders), context
        with self._held.named():
            refuse_unfit(self._held, digest, "hybrid" in folders)
            self.digests = {name: self._digest_of(name, digest) for name in folders}
            if "reranker" in folders:
                refuse_foreign_reranker(self._held, digest, self.digests)
            if "run" in folders:
                refuse_foreign_run(self._held, digest, self.digests)
            # The run describes what answers, and answers nothing itself.
            answering = {name: {"digest": value} for name, value in self.digests.items() if name != "run"}
            self.identity = identity_of(answering)
            self.name = self.identity[:NAME_LENGTH]
            corpus = Corpus.open(self._held["corpus"])
            self._queries = open_query_encoder(self._held["retriever"], context)
            dtype = computed_in(precision, context.torch_device())
            self._passages = open_passage_encoder(self._held["retriever"], self._queries, context, dtype)
            self.index = VectorIndex(self._held["index"])
            check_index(self.index, corpus)
            check_width(self._queries, self.index)
            self.normalize = self._queries.normalize
            hybrid = read_hybrid(self._held["hybrid"], self.index) if "hybrid" in folders else None
            self.fusion = hybrid.fusion if hybrid else Fusion()
            self._bm25: BM25 | None = hybrid.both.bm25 if hybrid and hybrid.both else None
            self.passages = Passages(corpus)
            self.titles = corpus.titles
            self._has_documents = has_documents(corpus)
            self.canaries = read_canaries(self._held["run"], corpus) if "run" in folders else []
            self._held.refuse_changed()
        self.reranks = "reranker" in folders
        self.origin: Mapping[str, Any] = {}
        self.canary_overlap: float | None = None

    def _digest_of(self, name: str, digest: Digest) -> str:
        folder = self._held[name]
        if (folder / MANIFEST).is_file():
            return read_manifest(folder, verify=False).digest
        return foreign_manifest(folder, digest).digest

    @property
    def passage_precision(self) -> str:
        """In what the vectors of passages are computed: fp32 or bf16."""
        return "bf16" if isinstance(self._passages, PlainBert) and self._passages.dtype == torch.bfloat16 else "fp32"

    @property
    def has_bm25(self) -> bool:
        return self._bm25 is not None

    @cached_property
    def _reranker(self) -> Any:
        from stillhouse.serving.pair_scores import PairScores

        with self._held.named():
            return PairScores(self._held["reranker"], self._context)

    def warm(self) -> None:
        """Answers once in every way, so that the first client does not wait for one-time work.

        Raises `InputError` if the canary queries are ranked differently than in the release's run.
        """
        self.rank([WARMED_WITH], self.encode(self.tokenize([WARMED_WITH], "query"), "query"), [Ranked()])
        self.encode(self.tokenize([WARMED_WITH], "passage"), "passage")
        if self.reranks:
            self.score_pairs(WARMED_WITH, [WARMED_WITH])
        if self.canaries:
            self.canary_overlap = self._refuse_failing()
        release_freed_memory()  # what opening took: 30 MB with a small model

    def _refuse_failing(self) -> float:
        """Asks the canary queries and returns their mean overlap with the run. Raises `InputError` if it is too low.

        Digests show that the files are the released ones. They cannot show that a model computes the same here: another
        CPU, another version of a library or a broken kernel may change the result.
        """
        texts = [text for text, _ in self.canaries]
        vectors_QD = self.encode(self.tokenize(texts, "query"), "query")
        overlaps = []
        for (_, expected), each in zip(
            self.canaries, self.rank(texts, vectors_QD, [Ranked(DEPTH, documents=False)] * len(texts))
        ):
            found = [row["passage_id"] for row in self.passages.at(each.rows, "passage_id")]
            overlaps.append(average_overlap(expected, found))
        mean = sum(overlaps) / len(overlaps)
        if mean < LEAST_OVERLAP:
            raise InputError(
                f"release {self.name} fails its canary queries: the first {DEPTH} passages of {len(texts)} of its own "
                f"queries agree with its run to {mean:.0%}, and at least {LEAST_OVERLAP:.0%} is required. Its model "
                "gives different results here than where it was released: serve another release, or make its run again "
                "here with `stillhouse retrieve`"
            )
        return mean

    def overwritten(self) -> bool:
        """Whether a file of the release was overwritten in place, so that it cannot answer any more."""
        try:
            self._held.refuse_changed()
        except InputError:
            return True
        return False

    def _encoder_of(self, role: str) -> TextEncoder:
        return self._queries if role == "query" else self._passages

    def tokenize(self, texts: Sequence[str], role: str) -> list[list[int]]:
        """The token ids of texts of a role, `query` or `passage`, truncated to what the model reads."""
        return self._encoder_of(role).tokenize(texts)

    def encode(self, ids: Sequence[Sequence[int]], role: str) -> NDArray[np.float32]:
        """Vectors float32 [Q, D] of tokenized texts, as the index compares them.

        Raises `InputError` if one is not a number, or if a file of the release was overwritten in place.
        """
        self._held.refuse_changed()
        vectors_QD = self._encoder_of(role).vectors(ids)
        refuse_not_finite(vectors_QD, ["(not shown)"] * len(ids))
        return cut(vectors_QD, self.index.width, self.normalize)

    def encode_passages(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors float32 [B, D] of passages as `passage_text` makes them."""
        return self.encode(self.tokenize(texts, "passage"), "passage")

    def token_states(self, ids: Sequence[int], role: str) -> NDArray[np.float32]:
        """The states of a tokenized text before pooling, float32 [L, D], special tokens included."""
        self._held.refuse_changed()
        states_LD = self._encoder_of(role).token_states(ids)
        refuse_not_finite(states_LD, ["(not shown)"] * len(ids))
        return states_LD

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

    def _ranked(
        self, texts: Sequence[str], vectors_QD: NDArray[np.float32], how: Ranked
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        index: VectorIndex | FilteredIndex = self.index
        bm25: BM25 | FilteredBM25 | None = self._bm25
        if how.id_prefix or how.article or how.where:
            rows_F = self.passages.rows_within(how.id_prefix, how.article, how.where)
            index = FilteredIndex(self.index, rows_F)
            bm25 = FilteredBM25(self._bm25, rows_F) if self._bm25 else None
        fusion = self.fusion if how.bm25 is None else Fusion("convex", how.bm25, 1.0 - how.bm25, self.fusion.depth)

        def ranked(depth: int) -> Ranking:
            gpu = isinstance(index, VectorIndex) and searches_on_gpu(index, depth, self._context)
            if bm25 is None or how.bm25 == 0 or fusion.method == "dense" or not len(index):
                return index.search(vectors_QD, depth, gpu=gpu)
            both = HybridIndex(cast(BM25, bm25), cast(VectorIndex, index))
            return both.search(fusion, texts, vectors_QD, min(depth, len(index)), gpu)

        if self.by_document(how):
            return best_of_documents(ranked, self.passages.documents_of, how.top, len(index))
        return ranked(how.top)

    def by_document(self, how: Ranked) -> bool:
        return self._has_documents if how.documents is None else how.documents

    def score_pairs(self, query: str, texts: Sequence[str]) -> tuple[list[float], int]:
        """The cross-encoder's score of the query with each text, and the number of tokens. Only if `reranks`."""
        self._held.refuse_changed()
        scores: tuple[list[float], int] = self._reranker(query, texts)
        return scores

    def about(self) -> dict[str, Any]:
        """The content of `/info` about it."""
        return {
            "release": self.name,
            "identity": self.identity,
            **self.origin,
            "digests": self.digests,
            "passages": len(self.passages),
            "width": self.index.width,
            "index": {"kind": self.index.kind, "recall@10": self.index.recall(10)},
            "ranking": str(self.fusion),
            "bm25": self.has_bm25,
            "reranker": self.reranks,
            "canaries": {"queries": len(self.canaries), "overlap": self.canary_overlap},
            "precision": {"queries": "fp32", "passages": self.passage_precision},
        }


def refuse_foreign_reranker(held: OpenFolders, digest: Digest, digests: Mapping[str, str]) -> None:
    """Refuses a damaged cross-encoder, and one that was trained on another corpus."""
    if read_manifest(held["reranker"], digest=digest).inputs.get("corpus") != digests["corpus"]:
        raise InputError(
            f"{held['reranker']} was trained on another corpus than {held['corpus']}; run `stillhouse train-reranker` "
            "with this one, or leave the folder out of the release"
        )


def refuse_foreign_run(held: OpenFolders, digest: Digest, digests: Mapping[str, str]) -> None:
    """Refuses a damaged run, and one of another model, index, corpus or fusion than those of the release."""
    run = read_manifest(held["run"], digest=digest)
    for name in ("corpus", "retriever", "index", "hybrid"):
        if run.inputs.get(name) != digests.get(name):
            raise InputError(
                f"{held['run']} was made from another {name} than {held[name]}; run `stillhouse retrieve` with this "
                "one, or leave the folder out of the release"
            )


def read_canaries(run: Path, corpus: Corpus) -> list[tuple[str, list[str]]]:
    """The texts of queries, with the ids of their passages in the run that `retrieve` wrote, best first: of its test
    queries, or of dev if there are no test queries."""
    for split in ("test", "dev"):
        path = run / f"{split}.trec"
        found: dict[str, list[str]] = {}
        if not path.is_file():
            continue
        with path.open(encoding="utf-8") as lines:
            for line in lines:  # queries follow one another; the rest is not read
                query_id, _, passage_id = line.split()[:3]
                if query_id not in found and len(found) == CANARIES:
                    break
                found.setdefault(query_id, []).append(passage_id)
        texts = corpus.queries_of(split).set_index("query_id")["text"]
        return [(texts[query_id], ids[:DEPTH]) for query_id, ids in found.items()]
    return []


def average_overlap(expected: Sequence[str], found: Sequence[str]) -> float:
    """The mean, over the depths 1, 2, … of `expected`, of the share of passages that both rankings have down to there.

    1 for equal rankings, 0 for two without a common passage. Fagin, Kumar & Sivakumar, SODA 2003, §3.
    """
    shares = [len({*expected[:depth]} & {*found[:depth]}) / depth for depth in range(1, len(expected) + 1)]
    return sum(shares) / len(shares)
