"""Passages without a qrel that still must not be negatives of queries made from the corpus."""

from __future__ import annotations

import numpy as np
import pandas as pd

from stillhouse.corpus.pair_drawing import HEADING, TITLE
from stillhouse.corpus.store import Corpus


def not_negatives(corpus: Corpus) -> pd.DataFrame:
    """`query_id` and `row` (int32) of the passages that are neither relevant to a pair query nor negatives.

    These are the passage that the query was taken from; for `bfs` and `wlp` all passages of its own article and of its
    relevant passage's article, any of which could have been drawn as the relevant one; for `title` all passages of the
    article, and for `heading` all of the section, since each is about the subject that the query names.
    """
    queries = corpus.queries[corpus.queries["taken_from"] != ""]
    own = pd.DataFrame({"query_id": queries["query_id"], "row": corpus.rows_of(queries["taken_from"])})
    wide = queries["query_id"][queries["origin"].isin(["bfs", "wlp", TITLE])]
    judged = corpus.qrels[corpus.qrels["query_id"].isin(wide)]
    ends = pd.concat(
        [
            own[own["query_id"].isin(wide)],
            pd.DataFrame({"query_id": judged["query_id"], "row": corpus.rows_of(judged["passage_id"])}),
        ]
    )
    article = corpus.passages_at(ends["row"].to_numpy(), "article_id")["article_id"]
    ends = ends.assign(article=article.to_numpy())[["query_id", "article"]].drop_duplicates()
    related = ends.merge(_rows_of_articles(corpus, ends["article"]), on="article")[["query_id", "row"]]
    return (
        pd.concat([own, related, _rows_of_sections(corpus, own, queries)])
        .drop_duplicates()
        .astype({"row": np.int32})
        .reset_index(drop=True)
    )


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


def _rows_of_sections(corpus: Corpus, own: pd.DataFrame, queries: pd.DataFrame) -> pd.DataFrame:
    """`query_id` and `row` of every passage in the sections whose headings are queries."""
    own = own[own["query_id"].isin(queries["query_id"][queries["origin"] == HEADING])].reset_index(drop=True)
    own = own[["query_id"]].join(corpus.passages_at(own["row"].to_numpy(), "article_id", "section"))
    own = own.rename(columns={"article_id": "article"})
    related = own.merge(_rows_of_articles(corpus, own["article"]), on="article")
    same = corpus.passages_at(related["row"].to_numpy(), "section")["section"] == related["section"]
    return related.loc[same, ["query_id", "row"]]
