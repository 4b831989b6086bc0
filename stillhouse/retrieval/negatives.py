"""Hard negatives as an integer matrix: made from a ranking, written, read, and drawn for a training step.

Shapes: Q queries (train and dev), K the depth of the ranking, D the depth kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stillhouse.corpus.store import Corpus
from stillhouse.retrieval.relevance import AnswerSets, never_negative

SPLITS = ("train", "dev")


def training_queries(corpus: Corpus) -> pd.DataFrame:
    """The queries that trainings read: train, then dev, in corpus order."""
    return pd.concat([corpus.queries_of(split) for split in SPLITS], ignore_index=True)


def without_positives(
    rows_QK: NDArray[np.int32], offsets: NDArray[np.int64], positives: NDArray[np.int32], depth: int
) -> NDArray[np.int32]:
    """The best `depth` rows of each ranking that are not relevant to its query, padded with -1.

    `offsets` and `positives` are what `never_negative` gives for the same queries.
    """
    queries, width = rows_QK.shape
    relevant_QK = AnswerSets(offsets, positives).hold(np.arange(queries)[:, None], rows_QK)
    kept_QK = (rows_QK >= 0) & ~relevant_QK
    order_QK = np.argsort(~kept_QK, axis=1, kind="stable")
    negatives_QK = np.take_along_axis(np.where(kept_QK, rows_QK, np.int32(-1)), order_QK, axis=1)[:, :depth]
    return np.pad(negatives_QK, ((0, 0), (0, max(0, depth - width))), constant_values=-1).astype(np.int32)


@dataclass(frozen=True)
class Negatives:
    """`queries` (query_id, split) and, for each, `rows_QD`: passage rows best first, padded with -1."""

    queries: pd.DataFrame
    rows_QD: NDArray[np.int32]

    @classmethod
    def read(cls, folder: Path) -> Negatives:
        queries = pq.read_table(folder / "queries.parquet").to_pandas()
        return cls(queries, np.load(folder / "rows.npy", mmap_mode="r"))

    def write(self, folder: Path) -> None:
        table = pa.Table.from_pydict({name: list(self.queries[name]) for name in ("query_id", "split")})
        pq.write_table(table, folder / "queries.parquet")
        np.save(folder / "rows.npy", np.ascontiguousarray(self.rows_QD))

    def counts(self) -> NDArray[np.int64]:
        """How many negatives each query has."""
        return (np.asarray(self.rows_QD) >= 0).sum(axis=1)


Search = Callable[[list[str], int], NDArray[np.int32]]
"""`search(texts, depth) -> rows int32 [Q, K]`, best first, padded with -1."""


AMONG = ("corpus", "answers")


def mine(corpus: Corpus, search: Search, depth: int, among_what: str = "corpus") -> Negatives:
    """The best `depth` wrong passages of every train and dev query, by a search.

    Right answers (`never_negative`) are taken out afterwards, so as many more are asked for. With `among_what`
    "answers" a negative is a passage that answers another query of the same split. Where splits divide the passages
    (by article, say), passages of the other splits are wrong for every train query, and a model that sees them as
    negatives learns them by heart as wrong; the search then reads twice as deep as it needs on average.
    """
    assert among_what in AMONG, among_what
    queries = training_queries(corpus)
    offsets, right = never_negative(corpus, list(queries["query_id"]))
    spare = int(np.diff(offsets).max(initial=0))
    if among_what == "corpus":
        rows_QK = search(list(queries["text"]), depth + spare)
        return Negatives(queries[["query_id", "split"]], without_positives(rows_QK, offsets, right, depth))
    parts = []
    for split in SPLITS:
        of_split = np.flatnonzero((queries["split"] == split).to_numpy())
        answers_N = np.zeros(len(corpus.passages), dtype=np.bool_)
        chosen = np.isin(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), of_split)
        answers_N[right[chosen]] = True
        deep = min(len(answers_N), spare + 2 * math.ceil(depth * len(answers_N) / max(1, int(answers_N.sum()))))
        rows_QK = search(list(queries["text"].iloc[of_split]), deep) if len(of_split) else np.zeros((0, 1), np.int32)
        known_QK = np.where((rows_QK >= 0) & answers_N[rows_QK], rows_QK, np.int32(-1))
        own_offsets = np.concatenate([[0], np.cumsum(np.diff(offsets)[of_split])])
        parts.append(without_positives(known_QK, own_offsets, right[chosen], depth))
    return Negatives(queries[["query_id", "split"]], np.concatenate(parts))


def describe(negatives: Negatives) -> str:
    """A line for the log that says how many queries have none."""
    counts = negatives.counts()
    empty = int((counts == 0).sum())
    line = f"{counts.mean() if len(counts) else 0:.0f} negatives for each of {len(counts)} queries"
    return line + (f"; {empty} queries have none" if empty else "")
