"""Which passages are right answers of a query, and which may never be a negative of it: more than its qrels, because
texts repeat and queries are made from the corpus too.

Shapes: Q requested queries, R passages, F found passages, B passages of a block, K candidates or ranks, P right
passages of a query.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from stillhouse.core.arrays import evenly_spaced
from stillhouse.corpus.articles import offsets_of
from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.digest_numbers import DigestNumbers, digests_of
from stillhouse.corpus.schemas import SOURCE
from stillhouse.corpus.store import Corpus, passage_text_blocks
from stillhouse.evaluation.rankings import repeated


def relevant_passages(corpus: Corpus, qrels: pd.DataFrame) -> pd.DataFrame:
    """`query_id` and `row` (int32) of the passages of some qrels and, if qrels name documents, of all others of theirs.

    Those of a query that are in `qrels` come first.
    """
    found = pd.DataFrame({"query_id": qrels["query_id"].to_numpy(), "row": corpus.rows_of(qrels["passage_id"])})
    documents_N = corpus.documents
    if documents_N is None or found.empty:
        return found
    found["document"] = documents_N[found["row"]]
    rows = np.flatnonzero(np.isin(documents_N, found["document"])).astype(np.int32)
    others = found[["query_id", "document"]].merge(pd.DataFrame({"document": documents_N[rows], "row": rows}))
    return pd.concat([found, others])[["query_id", "row"]].drop_duplicates(ignore_index=True)


class AnswerSets:
    """The right answers of every query, prepared for repeated look-ups.

    `offsets` int64 [Q + 1] and `rows` int32 (ascending within a query) come from `never_negative`.
    """

    def __init__(self, offsets: NDArray[np.int64], rows: NDArray[np.int32]) -> None:
        self._span = np.int64(int(rows.max(initial=-1)) + 1)
        queries = np.arange(len(offsets) - 1, dtype=np.int64)
        self._keys = np.repeat(queries, np.diff(offsets)) * self._span + rows

    def hold(self, queries: NDArray[np.int64], candidates: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Whether each candidate answers its query; both broadcast. A padded candidate, -1, does not."""
        wanted = queries.astype(np.int64) * self._span + candidates
        place = np.searchsorted(self._keys, wanted)
        found = np.zeros(wanted.shape, dtype=np.bool_)
        inside = (place < len(self._keys)) & (candidates >= 0) & (candidates < self._span)
        found[inside] = self._keys[place[inside]] == wanted[inside]
        return found


def twins(corpus: Corpus, rows_R: NDArray[np.integer]) -> tuple[NDArray[np.int64], pd.DataFrame]:
    """A number for the text of each of these passages, int64 [R], and all passages of the corpus with these texts.

    The latter are `row` (int32, ascending) with their text's number, `passage_text`. Equal texts have equal numbers.
    Only the digests of the texts of `rows_R` are held, so memory does not grow with the corpus.
    """
    numbers, asked = DigestNumbers(), np.unique(rows_R)
    known = [numbers.add(digests_of(texts)) for texts in passage_text_blocks(corpus, asked)]
    found: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
    first = 0
    for texts in passage_text_blocks(corpus) if len(asked) else ():
        numbers_B = numbers.find(digests_of(texts))
        there = np.flatnonzero(numbers_B >= 0)
        found.append((numbers_B[there], first + there))
        first += len(texts)
    none = np.empty(0, dtype=np.int64)
    number_F, row_F = (np.concatenate([none, *parts]) for parts in (zip(*found) if found else ((), ())))
    number_R = np.concatenate([none, *known])[np.searchsorted(asked, rows_R)]
    return number_R, pd.DataFrame({"passage_text": number_F, "row": row_F.astype(np.int32)})


def never_negative(corpus: Corpus, query_ids: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """The passages that answer each query, as far as the corpus says.

    These are the passages relevant to it or to any query with the same text, all those of a document that is relevant,
    and, for a query made from the corpus, those of `not_negatives`, plus every passage with the same text as one of
    them. As a negative, each would contradict
    a positive. Returns offsets int64 `[Q + 1]` and rows int32, ascending; query i has
    `rows[offsets[i]:offsets[i + 1]]`.
    """
    text_of_query = pd.Series(pd.factorize(corpus.queries["text"].map(normalise))[0], index=corpus.queries["query_id"])
    relevant = relevant_passages(corpus, corpus.qrels[corpus.qrels["relevance"] > 0])
    right = pd.concat([relevant, not_negatives(corpus)])
    query_ids_right, rows_right = right["query_id"].to_numpy(), right["row"].to_numpy()
    text_of_right, equal = twins(corpus, rows_right)
    of_right, of_asked = (text_of_query.reindex(pd.Index(ids, dtype=object)) for ids in (query_ids_right, query_ids))
    right = pd.DataFrame({"query_text": of_right.to_numpy(), "passage_text": text_of_right}).drop_duplicates()
    asked = pd.DataFrame({"number": np.arange(len(query_ids)), "query_text": of_asked.to_numpy()})
    pairs = asked.merge(right, on="query_text").merge(equal, on="passage_text").sort_values(["number", "row"])
    return offsets_of(pairs["number"].to_numpy(), len(query_ids)), pairs["row"].to_numpy(dtype=np.int32)


def not_negatives(corpus: Corpus) -> pd.DataFrame:
    """`query_id` and `row` (int32) of the passages that are neither relevant to a pair query nor negatives.

    These are the passage that the query was taken from; for `bfs` and `wlp` all passages of its own article and of its
    relevant passage's article, any of which could have been drawn as the relevant one.
    """
    queries = corpus.queries[corpus.queries["taken_from"] != ""]
    own = pd.DataFrame({"query_id": queries["query_id"], "row": corpus.rows_of(queries["taken_from"])})
    wide = queries["query_id"][queries["origin"].isin(["bfs", "wlp"])]
    judged = corpus.qrels[corpus.qrels["query_id"].isin(wide)]
    relevant = pd.DataFrame({"query_id": judged["query_id"], "row": corpus.rows_of(judged["passage_id"])})
    ends = pd.concat([own[own["query_id"].isin(wide)], relevant])
    article = corpus.passages_at(ends["row"].to_numpy(), "article_id")["article_id"]
    ends = ends.assign(article=article.to_numpy())[["query_id", "article"]].drop_duplicates()
    related = ends.merge(_rows_of_articles(corpus, ends["article"]), on="article")[["query_id", "row"]]
    return pd.concat([own, related]).drop_duplicates().astype({"row": np.int32}).reset_index(drop=True)


def _rows_of_articles(corpus: Corpus, articles: pd.Series) -> pd.DataFrame:
    """`article` and `row` (int32) of every passage of some articles. Only these articles' ids are kept in memory.

    Reads nothing if there are no articles.
    """
    wanted, found, first = set(articles), [], 0
    for block in corpus.passage_blocks("article_id") if wanted else ():
        article = block["article_id"]
        rows = pd.DataFrame({"article": article, "row": np.arange(first, first + len(block), dtype=np.int32)})
        found.append(rows[article.isin(wanted)])
        first += len(block)
    return pd.concat(found) if found else pd.DataFrame({"article": articles.iloc[:0], "row": np.zeros(0, np.int32)})


class JudgedQueries:
    """The judged queries of a split: those of the source if there are `fewest` of them or no others (`labelled`), else
    those made from the corpus.

    A passage is right for a query (in its qrels), wrong, or neither. Neither are passages with the text of a right one
    and the passage that a made query was taken from (`relevance.never_negative`). If qrels name documents, all passages
    of a relevant one are right. Of more than `at_most` queries, that many are taken, evenly spaced.
    """

    def __init__(self, corpus: Corpus, split: str = "dev", at_most: int | None = None, fewest: int = 1) -> None:
        queries = corpus.queries_of(split)
        queries = queries[queries["query_id"].isin(corpus.qrels_of(split)["query_id"])]
        real = queries["origin"] == SOURCE
        self.labelled = int(real.sum()) >= min(fewest, max(1, len(queries)))
        chosen = queries[real == self.labelled]
        if at_most is not None:
            chosen = chosen.iloc[evenly_spaced(len(chosen), at_most)]
        self.query_ids = list(chosen["query_id"])
        self.texts = list(chosen["text"])
        self._documents_N = corpus.documents if self.labelled else None
        positives = corpus.positives if self._documents_N is None else partial(_of_documents, corpus)
        offsets, rows = positives(self.query_ids)
        self._right = AnswerSets(offsets, rows)
        self.answers_QP = padded(offsets, rows)
        """The right passages of each query, int32 [Q, P], padded with -1."""
        self._never_wrong = AnswerSets(*never_negative(corpus, self.query_ids))

    def __len__(self) -> int:
        return len(self.texts)

    def right(self, rows_QK: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which candidates are relevant, bool [Q, K]; padding (-1) is not."""
        return self._right.hold(np.arange(len(self))[:, None], rows_QK)

    def judged(self, rows_QK: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which candidates are right or wrong, bool [Q, K], and not neither."""
        neither_QK = self._never_wrong.hold(np.arange(len(self))[:, None], rows_QK) & ~self.right(rows_QK)
        return (rows_QK >= 0) & ~neither_QK

    def judged_best(self, rows_QK: NDArray[np.int32], scores_QK: NDArray[np.floating]) -> NDArray[np.bool_]:
        """`judged`, and if qrels name documents only the candidate of each document that scores highest."""
        judged_QK = self.judged(rows_QK)
        if self._documents_N is not None:
            order_QK = np.argsort(-np.where(judged_QK, scores_QK, -np.inf), axis=1, kind="stable")
            ranked_QK = np.take_along_axis(rows_QK, order_QK, axis=1)
            lower_QK = np.empty_like(judged_QK)
            np.put_along_axis(lower_QK, order_QK, repeated(self._documents_N[ranked_QK]), axis=1)
            judged_QK &= ~lower_QK
        return judged_QK

    def reciprocal_ranks(self, rows_QK: NDArray[np.int32]) -> NDArray[np.float64]:
        """RR@10 of each query's ranking, float64 [Q], of documents if qrels name them.

        Passages that are neither right nor wrong are skipped.
        """
        judged_QK = self.judged_best(rows_QK, -np.arange(rows_QK.shape[1], dtype=np.float64))
        rank_QK = np.cumsum(judged_QK, axis=1)
        hit_QK = self.right(rows_QK) & (rank_QK <= 10)
        first_Q = np.argmax(hit_QK, axis=1)
        found_Q = hit_QK.any(axis=1)
        ranks_Q = np.take_along_axis(rank_QK, first_Q[:, None], axis=1)[:, 0]
        return np.where(found_Q, 1.0 / np.maximum(ranks_Q, 1), 0.0)


def _of_documents(corpus: Corpus, query_ids: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """`Corpus.positives`, with all passages of the relevant documents."""
    qrels = corpus.qrels[corpus.qrels["relevance"] > 0]
    found = relevant_passages(corpus, qrels[qrels["query_id"].isin(query_ids)])
    number = pd.Index(query_ids).get_indexer(pd.Index(found["query_id"]))
    order = np.lexsort((found["row"], number))
    return offsets_of(number, len(query_ids)), found["row"].to_numpy()[order]


def padded(offsets: NDArray[np.int64], rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """The rows of each query, `rows[offsets[i]:offsets[i + 1]]`, int32 [Q, P], padded with -1."""
    counts_Q = np.diff(offsets)
    place_QP = np.arange(counts_Q.max(initial=0)) < counts_Q[:, None]
    rows_QP = np.full(place_QP.shape, -1, dtype=np.int32)
    rows_QP[place_QP] = rows
    return rows_QP
