"""Answering a person's question with ranked passages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stillhouse.artifacts import MANIFEST, Digest, digest_file, foreign_manifest, read_manifest
from stillhouse.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError
from stillhouse.open_folders import OpenFolders
from stillhouse.retrieval.dense import check_index, check_width, refuse_not_finite, searches_on_gpu
from stillhouse.retrieval.query_encoder import open_query_encoder
from stillhouse.retrieval.vector_index import VectorIndex, cut


@dataclass(frozen=True)
class Hit:
    """One passage of an answer. `score` is the similarity of question and passage: a cosine for cosine retrievers."""

    rank: int
    score: float
    passage_id: str
    title: str
    text: str


class Searcher:
    """A corpus, its index and the retriever that made it, loaded once for many questions.

    Answers are those of the files that were verified when it was opened, also after another run has replaced them.
    `digest` gives the SHA-256 of a file. Raises `InputError` for a folder that is missing or damaged, and for an index
    that was made from another corpus or by another retriever.
    """

    def __init__(
        self,
        corpus: Path,
        retriever: Path,
        index: Path,
        context: Context,
        digest: Digest = digest_file,
    ) -> None:
        self._held = OpenFolders({"corpus": corpus, "retriever": retriever, "index": index})
        self._context = context
        with self._held.named():
            refuse_unfit(self._held, digest)
            self._corpus = Corpus.open(self._held["corpus"])
            self._encoder = open_query_encoder(self._held["retriever"], context)
            self._index = VectorIndex(self._held["index"])
            check_index(self._index, self._corpus)
            check_width(self._encoder, self._index)
            self._held.refuse_changed()

    def search(self, question: str, top: int) -> list[Hit]:
        """The `top` best passages, best first: fewer where the corpus, or what an approximate index finds, is less.

        Raises `InputError` for a question without words, and where a file was overwritten in its place.
        """
        if not question.strip():
            raise InputError("the question is empty; type what you want to find")
        with self._held.named():
            vectors_QD = self._encoder.vectors([question])
            refuse_not_finite(vectors_QD, [question])
            vectors_QD = cut(vectors_QD, self._index.width, self._encoder.normalize)
            on_gpu = searches_on_gpu(self._index, top, self._context)
            rows_QK, scores_QK = self._index.search(vectors_QD, top, gpu=on_gpu)
            found = self._corpus.passage_table(rows_QK[0][rows_QK[0] >= 0], "passage_id", "title", "text")
            self._held.refuse_changed()
        hits = zip(scores_QK[0].tolist(), found.to_pylist())
        return [Hit(rank, score, **passage) for rank, (score, passage) in enumerate(hits, 1)]


def refuse_unfit(held: OpenFolders, digest: Digest) -> None:
    """Refuses damaged folders, and an index that was made from another corpus or retriever than those that are held."""
    corpus, index = (read_manifest(held[name], digest=digest) for name in ("corpus", "index"))
    foreign = not (held["retriever"] / MANIFEST).is_file()
    retriever = (foreign_manifest if foreign else read_manifest)(held["retriever"], digest=digest)
    for name, manifest in (("corpus", corpus), ("retriever", retriever)):
        if index.inputs.get(name) != manifest.digest:
            raise InputError(
                f"{held['index']} was made from another {name} than {held[name]}; run `stillhouse index` with this one"
            )
