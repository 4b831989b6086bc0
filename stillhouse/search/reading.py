"""How well a retriever reads the language of a corpus, found without labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from stillhouse.core.arrays import evenly_spaced
from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus, passage_text_blocks
from stillhouse.models.settings import InferenceConfig
from stillhouse.search.bm25 import BM25
from stillhouse.search.hybrid import FEWEST_TO_FIT
from stillhouse.search.searcher import retrieve
from stillhouse.search.vector_index import VectorIndex

if TYPE_CHECKING:
    from stillhouse.models.encoder import BiEncoder

SHARE = 0.4
"""Of BM25's RR@10 on train queries. An untrained model that reads the language has 0.6 of it or more on queries that
were made from the corpus, one that does not 0.3 at most (docs/findings.md)."""
ASKED, DEPTH = 300, 50
TEXTS = 200
HALF_READ, UNREAD = 3.0, 20.0
"""Factors that were best on XQuAD, in German and in Hindi and Arabic (docs/findings.md)."""


def lexical_factor(
    encoder: BiEncoder,
    folder: Path,
    index: VectorIndex,
    bm25: BM25,
    corpus: Corpus,
    context: Context,
    config: InferenceConfig,
) -> float:
    """How many times its usual weight BM25 has in a fusion without labels (`unfitted`), with the retriever in `folder`.

    `UNREAD` if the retriever finds less than `SHARE` of what BM25 finds, on `FEWEST_TO_FIT` to `ASKED` train queries;
    `HALF_READ` if its tokenizer was made for other languages (`misfit`); else 1. A retriever that was trained on these
    queries finds more of them.
    """
    from stillhouse.evaluation.relevance import JudgedQueries
    from stillhouse.models.token_lengths import misfit

    asked = JudgedQueries(corpus, "train", ASKED, FEWEST_TO_FIT)
    if len(asked) >= FEWEST_TO_FIT:
        dense_QK, _ = retrieve(encoder, index, asked.texts, DEPTH, context, config)
        lexical_QK, _ = bm25.search(asked.texts, DEPTH)
        if asked.reciprocal_ranks(dense_QK).sum() < SHARE * asked.reciprocal_ranks(lexical_QK).sum():
            return UNREAD
    rows = evenly_spaced(corpus.passage_count, TEXTS)
    texts = [text for block in passage_text_blocks(corpus, rows) for text in block]
    return HALF_READ if misfit(texts, folder) else 1.0
