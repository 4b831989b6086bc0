"""The pair tasks of Chang et al. §3 as arrays: the passages that a query may come from, and the probability of each
target.

A query's passage is drawn uniformly from the task's sources, the query uniformly from that passage's sentences, and the
target as the task defines. This gives the probability of every target in closed form.

Shape suffixes: B pairs, N all passages.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stillhouse.corpus.articles import Articles


@dataclass(frozen=True)
class TaskPairs:
    """One task over some passages. `sources` int64: the rows that queries come from, ascending.

    `probability` float64 [N]: how likely a row is to be the target of a drawn pair; sums to 1 if there is a source.
    """

    sources: NDArray[np.int64]
    probability: NDArray[np.float64]


def ict_pairs(sentence_counts_N: NDArray[np.int64], among_N: NDArray[np.bool_]) -> TaskPairs:
    """Sources: passages with two or more sentences. Target: the passage itself, without the query."""
    sources = np.flatnonzero(among_N & (sentence_counts_N >= 2))
    probability_N = np.zeros(len(among_N))
    probability_N[sources] = 1 / max(1, len(sources))
    return TaskPairs(sources, probability_N)


def bfs_pairs(
    articles: Articles, article_N: NDArray[np.int32], lead_N: NDArray[np.bool_], among_N: NDArray[np.bool_]
) -> TaskPairs:
    """Sources: passages of a first section whose article has another passage. Target: one of the others, uniformly.

    A target in an article with n passages and s sources is drawn with probability s' / (S (n - 1)), where S is the
    number of all sources and s' is s without the target itself.
    """
    sources = np.flatnonzero(among_N & lead_N & (articles.place >= 0))
    sources = sources[articles.sizes()[article_N[sources]] >= 2]
    probability_N = np.zeros(len(among_N))
    if len(sources):
        sources_A = np.bincount(article_N[sources], minlength=len(articles.offsets) - 1)
        rows = articles.passages[among_N[articles.passages]]
        article = article_N[rows]
        others = sources_A[article] - np.isin(rows, sources)
        probability_N[rows] = others / (len(sources) * np.maximum(1, articles.sizes()[article] - 1))
    return TaskPairs(sources, probability_N)


def wlp_pairs(
    articles: Articles, article_N: NDArray[np.int32], lead_N: NDArray[np.bool_], among_N: NDArray[np.bool_]
) -> TaskPairs:
    """Sources: passages of a first section whose article has a link from another article.

    Target: a passage of an article with a hyperlink to the query's (Chang et al. §3: "where there is a hyperlink link
    to the page of" the query). The linking article is drawn uniformly, then its passage. A passage of article b is
    drawn with probability (1 / n_b) sum_a s_a / (S d_a), over the articles a that b links to: b has n_b passages, a has
    s_a of the S sources, and d_a articles link to a.
    """
    sources = np.flatnonzero(among_N & lead_N & (articles.place >= 0))
    sources = sources[articles.in_degrees()[article_N[sources]] >= 1]
    probability_N = np.zeros(len(among_N))
    if len(sources):
        count = len(articles.offsets) - 1
        share_A = np.bincount(article_N[sources], minlength=count) / len(sources)
        degrees_A = articles.in_degrees()
        share_E = np.repeat(share_A / np.maximum(1, degrees_A), degrees_A)
        mass_A = np.bincount(articles.linking, weights=share_E, minlength=count)
        rows = articles.passages[among_N[articles.passages]]
        article = article_N[rows]
        probability_N[rows] = mass_A[article] / articles.sizes()[article]
    return TaskPairs(sources, probability_N)
