"""Which passage of a document answers a query, where a qrel names the document.

Shapes: P pairs of a query and a passage of a document that is relevant to it.
"""

import numpy as np
import pandas as pd

from stillhouse.corpus.cleaning import CleanCorpus
from stillhouse.corpus.sources.rows import Qrel
from stillhouse.evaluation.answer_matching import AnswerMatcher
from stillhouse.search.bm25 import BM25, PASSAGES_SAMPLED, language_of

K1, B = 1.5, 0.75


def keep_best(corpus: CleanCorpus) -> None:
    """Keeps one of a document's qrels for each query: that of the passage that BM25 ranks first, among those with an
    answer of the query if there are any.

    On SQuAD's questions with its articles as documents, this is the paragraph that was asked about for 94 % of them,
    and for 78 % without the answers (docs/documents.md).
    """
    pairs = [(row.query_id, row.passage_id) for row, _ in corpus.qrels if _key(row) in corpus.documents]
    if not pairs:
        return
    table = pd.DataFrame(pairs, columns=["query_id", "passage_id"])
    table["document"] = [corpus.documents[pair] for pair in pairs]
    rows_R, place_P = np.unique(corpus.passages.rows_of(list(table["passage_id"])), return_inverse=True)
    texts = corpus.passages.texts_of(rows_R)
    query_P, query_ids = pd.factorize(table["query_id"])
    answers = pd.DataFrame(list(corpus.answers), columns=["query_id", "answer", "kind"])
    matcher = AnswerMatcher(answers, list(query_ids), lambda rows: [texts[row] for row in rows])
    bm25 = BM25.of(texts, K1, B, language_of(texts[:: max(1, len(texts) // PASSAGES_SAMPLED)]))
    queries = [corpus.queries[query_id].text for query_id in query_ids]
    table["score"] = bm25.score_pairs(queries, query_P, place_P.astype(np.int32))
    table["held"] = matcher.match(query_P, place_P)
    table = table.sort_values(["held", "score"], ascending=False, kind="stable")
    best = table.drop_duplicates(["query_id", "document"])
    kept = set(zip(best["query_id"], best["passage_id"]))
    corpus.qrels = [
        (row, relevance) for row, relevance in corpus.qrels if _key(row) in kept or _key(row) not in corpus.documents
    ]


def _key(row: Qrel) -> tuple[str, str]:
    return row.query_id, row.passage_id
