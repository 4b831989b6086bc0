"""Answering a person's question with ranked passages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError
from stillhouse.retrieval.dense import check_index, check_width, retrieve
from stillhouse.retrieval.encoder import BiEncoder
from stillhouse.retrieval.packed_linears import keep_packed
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.retrieval.vector_index import VectorIndex

EXACT = InferenceConfig(precision="fp32")


@dataclass(frozen=True)
class Hit:
    """One passage of an answer. `score` is the similarity of question and passage: a cosine for cosine retrievers."""

    rank: int
    score: float
    passage_id: str
    title: str
    text: str


class Searcher:
    """A corpus, its index and the retriever that made it, loaded once for many questions."""

    def __init__(self, corpus: Path, retriever: Path, index: Path, context: Context) -> None:
        opened = Corpus.open(corpus)
        self._corpus = opened
        self._encoder = BiEncoder.load(retriever)
        self._index = VectorIndex(index)
        self._context = context
        check_index(self._index, opened)
        check_width(self._encoder, self._index)
        # Packed here once, not anew for every question.
        keep_packed(self._encoder, context.torch_device())

    def search(self, question: str, top: int) -> list[Hit]:
        """The `top` best passages, best first: fewer where the corpus, or what an approximate index finds, is less.

        Raises `InputError` for a question without words.
        """
        if not question.strip():
            raise InputError("the question is empty; type what you want to find")
        rows_QK, scores_QK = retrieve(self._encoder, self._index, [question], top, self._context, EXACT)
        hits = self._corpus.passages_at(rows_QK[0][rows_QK[0] >= 0], "passage_id", "title", "text")
        columns = zip(scores_QK[0].tolist(), *(hits[name].tolist() for name in ("passage_id", "title", "text")))
        return [Hit(rank, *hit) for rank, hit in enumerate(columns, 1)]
