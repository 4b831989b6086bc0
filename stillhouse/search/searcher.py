"""Answers a question with ranked passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from stillhouse.core import context
from stillhouse.core.artifacts import MANIFEST, foreign_manifest, read_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.fields import Where, rows_where
from stillhouse.corpus.sources.rows import Value
from stillhouse.corpus.store import Corpus
from stillhouse.models.query_encoder import open_query_encoder
from stillhouse.search.dense import check_index, check_width, ranked, refuse_not_finite
from stillhouse.search.documents import Ranking, best_of_documents, has_documents
from stillhouse.search.filtered import FilteredIndex
from stillhouse.search.vector_index import VectorIndex, cut

if TYPE_CHECKING:
    from stillhouse.search.hybrid import HybridSearch


@dataclass(frozen=True)
class Hit:
    """One passage of an answer. `score` is the similarity of question and passage, a cosine for cosine retrievers.

    In hybrid search it is the weighted sum of the BM25 score and the similarity.
    """

    rank: int
    score: float
    passage_id: str
    title: str
    text: str
    fields: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class DocumentHit(Hit):
    """One document of an answer, shown by its best passage. `document_id` is the passage's article, or its own id."""

    document_id: str = ""
    section: str = ""


class Searcher:
    """A corpus, its index and its retriever, loaded once for many questions. With `hybrid`, BM25 ranks too.

    Open it again after another run has replaced the folders. Raises `InputError` for a missing or damaged folder, and
    for an index or a hybrid that was made from another corpus or by another retriever.
    """

    def __init__(
        self,
        corpus: Path,
        retriever: Path,
        index: Path,
        context: Context,
        hybrid: Path | None = None,
    ) -> None:
        folders = {"corpus": corpus, "retriever": retriever, "index": index}
        refuse_unfit(folders | ({"hybrid": hybrid} if hybrid else {}))
        self._context = context
        self._corpus = Corpus.open(corpus)
        self._encoder = open_query_encoder(retriever, context)
        self._index = VectorIndex(index)
        check_index(self._index, self._corpus)
        check_width(self._encoder, self._index)
        self._hybrid: HybridSearch | None = None
        if hybrid:
            from stillhouse.search.hybrid import read_hybrid  # imports bm25s, which dense search does not need

            with doing("loading BM25"):
                self._hybrid = read_hybrid(hybrid, self._index)
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
        index: VectorIndex | FilteredIndex = self._index
        hybrid = self._hybrid
        if where:
            rows_F = rows_where(self._corpus.fields, where)
            index, hybrid = FilteredIndex(self._index, rows_F), hybrid and hybrid.among(rows_F)

        def search(depth: int) -> Ranking:
            return ranked(index, hybrid, [question], vectors_QD, depth, self._context)

        by_document = self._by_document if documents is None else documents
        found_QK = best_of_documents(search, self._documents_of, top, len(index)) if by_document else search(top)
        rows_QK, scores_QK = found_QK
        rows = rows_QK[0][rows_QK[0] >= 0]
        found = self._corpus.passage_table(rows, "passage_id", "title", "text", "article_id", "section").to_pylist()
        fields = self._corpus.fields_at(rows)
        hits: list[Hit] = []
        for rank, (score, passage, known) in enumerate(zip(scores_QK[0].tolist(), found, fields), 1):
            article, section = passage.pop("article_id"), passage.pop("section")
            hit = Hit(rank, score, **passage, fields=known)
            document = article or hit.passage_id
            hits.append(DocumentHit(**vars(hit), document_id=document, section=section) if by_document else hit)
        return hits

    def _documents_of(self, rows: Sequence[int]) -> list[str]:
        passages = self._corpus.passage_table(np.array(rows, dtype=np.int64), "passage_id", "article_id").to_pylist()
        return [passage["article_id"] or passage["passage_id"] for passage in passages]


@doing("verifying the digests of its inputs")
def refuse_unfit(folders: Mapping[str, Path]) -> None:
    """Refuse damaged folders, and an index or a hybrid that was made from other folders than these."""
    corpus, index = (read_manifest(folders[name]) for name in ("corpus", "index"))
    foreign = folders["retriever"].is_dir() and not (folders["retriever"] / MANIFEST).is_file()
    retriever = (foreign_manifest if foreign else read_manifest)(folders["retriever"])
    sources = {"corpus": corpus, "retriever": retriever}
    made = {"index": index}
    if "hybrid" in folders:
        made["hybrid"] = read_manifest(folders["hybrid"])
    for what, manifest in made.items():
        for name, source in sources.items():
            if manifest.inputs.get(name) != source.digest:
                remedy = f"run `stillhouse {what}` with this one"
                raise InputError(f"{folders[what]} was made from another {name} than {folders[name]}; {remedy}")
        sources[what] = manifest
