"""A query's own passage: the one that it was taken from, or the one that it is. Neither counts as a result.

A pair task takes a query from a passage (`taken_from`). In ArguAna and Quora of BEIR, a query is a passage of the
corpus with the same id and asks for other passages. BEIR's evaluation removes any passage with the query's id from the
ranking. Ids can coincide by accident, as the numbers of MS MARCO do, so here the text must be equal too. A passage that
is relevant to the query stays in the ranking.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from stillhouse.corpus.cleaning import normalise
from stillhouse.corpus.store import Corpus
from stillhouse.corpus.titles import passage_text
from stillhouse.evaluation.runs import places


def taken_from(queries: pd.DataFrame) -> pd.DataFrame:
    """`query_id` and `passage_id` of queries and the passages that they were made from."""
    taken = queries.loc[queries["taken_from"] != "", ["query_id", "taken_from"]]
    return taken.rename(columns={"taken_from": "passage_id"})


def same_as(corpus: Corpus, queries: pd.DataFrame) -> pd.DataFrame:
    """`query_id` and `passage_id` of queries that are passages, by id and by text.

    The query must equal the passage's text, or its title and text as models read them, ignoring case and white space.
    """
    rows = corpus.passage_ids.find(queries["query_id"])
    asked, rows = queries[rows >= 0], rows[rows >= 0]
    passages = corpus.passages_at(rows, "title", "text")
    same = [
        normalise(query) in (normalise(text), normalise(passage_text(title, text, corpus.titles)))
        for query, title, text in zip(asked["text"], passages["title"], passages["text"], strict=True)
    ]
    query_ids = asked["query_id"].to_numpy(dtype=object)[np.array(same, dtype=np.bool_)]
    return pd.DataFrame({"query_id": query_ids, "passage_id": query_ids})


def without(run: pd.DataFrame, own: pd.DataFrame, qrels: pd.DataFrame) -> pd.DataFrame:
    """The run without the lines of `own` (`query_id`, `passage_id`) that are not relevant, with new ranks.

    `run` comes from `read_run` and may have more columns.
    """
    if own.empty:
        return run
    relevant = pd.MultiIndex.from_frame(qrels.loc[qrels["relevance"] > 0, ["query_id", "passage_id"]])
    own = own[~pd.MultiIndex.from_frame(own[["query_id", "passage_id"]]).isin(relevant)]
    queries, passages = run["query_id"].cat, run["passage_id"].cat
    query = queries.categories.get_indexer(pd.Index(own["query_id"]))
    passage = passages.categories.get_indexer(pd.Index(own["passage_id"]))
    known = (query >= 0) & (passage >= 0)
    width = len(passages.categories)
    left_out = query[known].astype(np.int64) * width + passage[known]
    kept = run[~np.isin(queries.codes.to_numpy().astype(np.int64) * width + passages.codes.to_numpy(), left_out)]
    kept = kept.reset_index(drop=True)
    kept["rank"] = places(kept["query_id"].cat.codes.to_numpy())
    return kept
