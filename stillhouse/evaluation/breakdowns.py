"""Figures by kind of query: by query length, and by how often training asked for the answer.

A figure over all queries hides which kinds of query a system serves. Queries are divided into a few bins, and every
system is measured in each, with an interval. Shapes: Q judged queries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from stillhouse.core.monitoring.activity import doing
from stillhouse.corpus.store import Corpus
from stillhouse.corpus.words import count_words
from stillhouse.evaluation.figures import Measured, stable
from stillhouse.evaluation.significance import bootstrap_intervals

FREQUENCIES = (0, 1, 2, 5)
"""The lowest value of every bin of training frequency."""


@dataclass(frozen=True)
class Bin:
    """Queries of one kind; `figures` maps a system to its mean and the mean's 95 % interval."""

    label: str
    queries: int
    figures: Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Breakdown:
    """One measure by one property of queries; `name` is its key in `breakdowns.json`."""

    name: str
    title: str
    axis: str
    measure: str
    bins: Sequence[Bin]


@doing("measuring groups of queries")
def breakdowns(corpus: Corpus, measured: Measured, samples: int, seed: int) -> list[Breakdown]:
    """Recall, or the first measure if there is none, by query length and by training frequency.

    A breakdown with a single bin is left out, and so is the one by article if every right passage is an article of its
    own.
    """
    measure = next((name for name in measured.measures if name.startswith(("R@", "R("))), measured.measures[0])
    query_ids = next(iter(measured.values.values())).index[measured.judged(measure)]
    length = _words(corpus, measured.split, query_ids)
    parts = [
        ("query_length", "By the length of the query", "words in the query", *_length_bins(length)),
        *(
            (f"training_frequency_of_{what}", title, axis, *_frequency_bins(_asked(corpus, measured, query_ids, what)))
            for what, title, axis in (
                ("passage", "By how often training asked for the passage", "train queries with the same right passage"),
                ("article", "By how often training asked for the article", "train queries on the right article"),
            )
        ),
    ]
    result: list[Breakdown] = []
    for name, title, axis, labels, bin_Q in parts:
        bins = [
            _bin(label, measured, measure, query_ids[bin_Q == number], samples, seed)
            for number, label in enumerate(labels)
            if (bin_Q == number).any()
        ]
        if len(bins) > 1 and not (result and bins == list(result[-1].bins)):
            result.append(Breakdown(name, title, axis, measure, bins))
    return result


def breakdowns_json(parts: Sequence[Breakdown]) -> dict[str, Any]:
    """{name: {measure, bins: [{label, queries, systems: {system: {mean, low, high}}}]}}."""
    return {
        part.name: {
            "measure": part.measure,
            "bins": [
                {
                    "label": of.label,
                    "queries": of.queries,
                    "systems": {
                        system: dict(zip(("mean", "low", "high"), figures)) for system, figures in of.figures.items()
                    },
                }
                for of in part.bins
            ],
        }
        for part in parts
    }


def _bin(label: str, measured: Measured, measure: str, query_ids: pd.Index, samples: int, seed: int) -> Bin:
    values_QS = np.stack([table.loc[query_ids, measure].to_numpy() for table in measured.values.values()], axis=1)
    low_S, high_S = bootstrap_intervals(values_QS, samples, seed)
    figures = zip(values_QS.mean(axis=0), low_S, high_S)
    return Bin(
        label,
        len(query_ids),
        {system: tuple(stable(x) for x in of) for system, of in zip(measured.systems, figures)},  # type: ignore[misc]
    )


def _words(corpus: Corpus, split: str, query_ids: pd.Index) -> np.ndarray:
    text = corpus.queries_of(split).set_index("query_id")["text"].reindex(query_ids)
    return text.map(count_words).to_numpy().astype(np.int64)


def _length_bins(words_Q: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Four bins with about the same number of queries, or fewer if many queries have the same length."""
    upper = np.unique(np.quantile(words_Q, [0.25, 0.5, 0.75, 1.0], method="lower"))
    lower = [int(words_Q.min()), *(int(value) + 1 for value in upper[:-1])]
    labels = [str(low) if low == high else f"{low}–{high}" for low, high in zip(lower, upper.tolist())]
    return labels, np.searchsorted(upper, words_Q)


def _frequency_bins(times_Q: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Bins of `FREQUENCIES`; -1, for no right passage, is in none of them."""
    ends = [*(start - 1 for start in FREQUENCIES[1:]), None]
    labels = [
        f"{start} or more" if end is None else str(start) if start == end else f"{start}–{end}"
        for start, end in zip(FREQUENCIES, ends)
    ]
    return labels, np.searchsorted(FREQUENCIES, times_Q, side="right") - 1


def _asked(corpus: Corpus, measured: Measured, query_ids: pd.Index, what: str) -> np.ndarray:
    """How many train queries have the same right passage or article as each query; the maximum if there are several.

    -1 for a query without a right passage, and for all queries if the corpus has no train qrels.
    """
    train, test = corpus.relevant("train"), corpus.relevant(measured.split)
    if train.empty or test.empty:
        return np.full(len(query_ids), -1)

    def key(qrels: pd.DataFrame) -> pd.Series:
        if what == "passage":
            return qrels["passage_id"]
        return corpus.passages_at(corpus.rows_of(qrels["passage_id"]), "article_id")["article_id"]

    asked = pd.DataFrame({"query_id": train["query_id"], "key": key(train)}).drop_duplicates()["key"].value_counts()
    times = pd.Series(key(test).map(asked).fillna(0).to_numpy(dtype=np.int64))
    most = times.groupby(test["query_id"].to_numpy()).max()
    return most.reindex(query_ids).fillna(-1).to_numpy().astype(np.int64)
