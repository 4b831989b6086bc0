"""The search index: faiss's exact inner-product index over all passages, in corpus order.

Shapes: N passages, Q queries, K depth, D width.
"""

from __future__ import annotations

from pathlib import Path

import faiss
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from stillhouse.errors import InputError
from stillhouse.retrieval.runs import order_by_score


def write_index(folder: Path, vectors_ND: NDArray[np.float32], passage_ids: pd.Series) -> None:
    """Writes `index.faiss` (IndexFlatIP) and `ids.parquet`. Vector i belongs to passage_ids[i]."""
    index = faiss.IndexFlatIP(vectors_ND.shape[1])
    index.add(np.ascontiguousarray(vectors_ND, dtype=np.float32))
    faiss.write_index(index, str(folder / "index.faiss"))
    pq.write_table(pa.Table.from_pydict({"passage_id": list(passage_ids)}), folder / "ids.parquet")


class VectorIndex:
    """An index folder, opened for search."""

    def __init__(self, folder: Path) -> None:
        self._index = faiss.read_index(str(folder / "index.faiss"))
        self.passage_ids = pq.read_table(folder / "ids.parquet")["passage_id"].to_pandas()
        if self._index.ntotal != len(self.passage_ids):
            raise InputError(f"{folder} has {self._index.ntotal} vectors and {len(self.passage_ids)} ids; index again")

    def search(self, queries_QD: NDArray[np.float32], depth: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Rows int32 [Q, K] and inner products float32 [Q, K], best first, ties in corpus order, padded with -1."""
        depth = min(depth, self._index.ntotal)
        if not len(queries_QD):
            return np.empty((0, depth), np.int32), np.empty((0, depth), np.float32)
        scores_QK, rows_QK = self._index.search(np.ascontiguousarray(queries_QD, dtype=np.float32), depth)
        scores_QK, rows_QK = order_by_score(scores_QK, rows_QK)
        return rows_QK.astype(np.int32), scores_QK.astype(np.float32)
