"""The candidates of many queries equal those of each query alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stillhouse.search import hybrid
from stillhouse.search.hybrid import HybridIndex
from stillhouse.search.vector_index import VectorIndex

PASSAGES, WIDTH, DEPTH = 40, 8, 5


class Lexical:
    """Ranks by a matrix of scores. Query `n` finds `n % (depth + 1)` passages."""

    def __init__(self, scores_QN: np.ndarray) -> None:
        self.scores_QN = scores_QN

    def __len__(self) -> int:
        return PASSAGES

    def search(self, texts: list[str], depth: int) -> tuple[np.ndarray, None]:
        rows = np.full((len(texts), depth), -1, dtype=np.int32)
        for place, text in enumerate(texts):
            found = np.argsort(-self.scores_QN[int(text)])[: int(text) % (depth + 1)]
            rows[place, : len(found)] = found
        return rows, None

    def scores_of(self, texts: list[str], rows_QK: np.ndarray) -> np.ndarray:
        return np.stack([self.scores_QN[int(text)][rows] for text, rows in zip(texts, rows_QK)])


def test_queries_are_looked_up_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    passages_ND, queries_QD = (rng.normal(size=(count, WIDTH)).astype(np.float32) for count in (PASSAGES, 11))
    most: list[int] = []

    def search(vectors_QD: np.ndarray, depth: int, gpu: bool) -> tuple[np.ndarray, None]:
        most.append(len(vectors_QD))
        return np.argsort(-(vectors_QD @ passages_ND.T), axis=1)[:, :depth].astype(np.int32), None

    index: Any = SimpleNamespace(search=search, vectors=lambda rows: passages_ND[rows])
    index_of = type("Index", (SimpleNamespace,), {"__len__": lambda self: PASSAGES, "products": VectorIndex.products})
    lexical: Any = Lexical(rng.normal(size=(11, PASSAGES)).astype(np.float32))
    both = HybridIndex(lexical, index_of(**vars(index)))  # type: ignore[arg-type]
    texts = [str(number) for number in range(11)]
    monkeypatch.setattr(hybrid, "QUERIES_AT_ONCE", 3)
    found = both.candidates(texts, queries_QD, DEPTH)
    assert max(most) == 3
    for number, text in enumerate(texts):
        alone = both.candidates([text], queries_QD[number : number + 1], DEPTH)
        width = alone.rows_QK.shape[1]
        assert (found.rows_QK[number, :width] == alone.rows_QK[0]).all() and (found.rows_QK[number, width:] == -1).all()
        np.testing.assert_array_equal(found.ranks_QKF[number, :width], alone.ranks_QKF[0])
        real = alone.rows_QK[0] >= 0
        np.testing.assert_allclose(found.scores_QKF[number, :width][real], alone.scores_QKF[0][real], rtol=1e-6)
