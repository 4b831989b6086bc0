"""Hard negatives as an integer matrix, read from and written to files. `mining` makes it, `groups` draws from it.

Shapes: Q queries (train and dev), D the negatives of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stillhouse.core.arrays import save_array
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus

SPLITS = ("train", "dev")


def training_queries(corpus: Corpus) -> pd.DataFrame:
    """The queries that training reads: train, then dev, in corpus order."""
    return pd.concat([corpus.queries_of(split) for split in SPLITS], ignore_index=True)


@dataclass(frozen=True)
class Negatives:
    """`queries` (query_id, split) and their negatives `rows_QD`: passage rows, best first, padded with -1.

    Training reads these queries alone.
    """

    queries: pd.DataFrame
    rows_QD: NDArray[np.int32]

    @classmethod
    def read(cls, folder: Path) -> Negatives:
        queries = pq.read_table(folder / "queries.parquet").to_pandas()
        return cls(queries, np.load(folder / "rows.npy", mmap_mode="r"))

    def write(self, folder: Path) -> None:
        table = pa.Table.from_pydict({name: list(self.queries[name]) for name in ("query_id", "split")})
        pq.write_table(table, folder / "queries.parquet")
        save_array(folder / "rows.npy", np.ascontiguousarray(self.rows_QD))

    def texts(self, corpus: Corpus) -> pd.DataFrame:
        """The rows of `corpus.queries` of these queries, in the same order: all that training reads, or without some.

        Raises `InputError` if a query is unknown, in another split or in another place.
        """
        found = training_queries(corpus)
        found = found[found["query_id"].isin(self.queries["query_id"])].reset_index(drop=True)
        names = ["query_id", "split"]
        if not np.array_equal(found[names].to_numpy(object), self.queries[names].to_numpy(object)):
            raise InputError("the negatives do not belong to the queries of this corpus; make them again")
        return found

    def counts(self) -> NDArray[np.int64]:
        """How many negatives each query has."""
        return (np.asarray(self.rows_QD) >= 0).sum(axis=1)


def describe(negatives: Negatives) -> str:
    """A log line with the mean number of negatives and the number of queries without any."""
    counts = negatives.counts()
    empty = int((counts == 0).sum())
    line = f"{counts.mean() if len(counts) else 0:.0f} negatives for each of {len(counts)} queries"
    return line + (f"; {empty} queries have none" if empty else "")
