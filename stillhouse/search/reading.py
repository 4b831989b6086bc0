"""Whether a retriever reads the language of a corpus, found without labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stillhouse.core.context import Context
from stillhouse.models.settings import InferenceConfig
from stillhouse.search.bm25 import BM25
from stillhouse.search.searcher import retrieve
from stillhouse.search.vector_index import VectorIndex

if TYPE_CHECKING:
    from stillhouse.corpus.store import Corpus
    from stillhouse.models.encoder import BiEncoder

SHARE = 0.4
ASKED, DEPTH = 300, 50


def reads_language(
    encoder: BiEncoder, index: VectorIndex, bm25: BM25, corpus: Corpus, context: Context, config: InferenceConfig
) -> bool:
    """Whether the retriever's RR@10 on train queries is at least `SHARE` of BM25's.

    Of many train queries, `ASKED` are read. They were made from the corpus, so they repeat its words, and BM25 finds
    most of them: a model that reads the language has at least 0.6 of its RR@10, one that does not at most 0.25
    (docs/findings.md). The dev queries of a small corpus are too few to tell. Without train queries it is true.
    """
    from stillhouse.evaluation.relevance import JudgedQueries

    asked = JudgedQueries(corpus, "train", at_most=ASKED)
    dense_QK, _ = retrieve(encoder, index, asked.texts, DEPTH, context, config)
    lexical_QK, _ = bm25.search(asked.texts, DEPTH)
    return bool(asked.reciprocal_ranks(dense_QK).sum() >= SHARE * asked.reciprocal_ranks(lexical_QK).sum())
