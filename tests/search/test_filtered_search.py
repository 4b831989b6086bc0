"""A filtered search finds what comparing every passage that is let through finds, in every kind of index."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_index_kinds import KINDS, QUERIES, VECTORS, stored, written

from stillhouse.search.bm25 import BM25
from stillhouse.search.filtered import FilteredBM25, FilteredIndex
from stillhouse.search.vector_index import VectorIndex

WHOLE = ("flat", "hnsw")
COPIES = np.concatenate([VECTORS, VECTORS[:300]])  # ties in every ranking


@pytest.fixture(scope="module")
def indexes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, VectorIndex]:
    folder = tmp_path_factory.mktemp("indexes")
    settings = {"ivf_nlist": 8, "ivf_nprobe": 1}
    vectors = stored(folder / "vectors", COPIES)
    return {
        kind: written(folder / kind, vectors, kind, **(settings if kind.startswith("ivf") else {})) for kind in KINDS
    }


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(let=st.integers(0, len(COPIES)), depth=st.integers(1, 40), seed=st.integers(0, 99))
def test_it_equals_a_comparison_of_all(
    indexes: dict[str, VectorIndex], kind: str, let: int, depth: int, seed: int
) -> None:
    rows = np.sort(np.random.default_rng(seed).choice(len(COPIES), let, replace=False)).astype(np.int32)
    index = indexes[kind]
    found, scores = FilteredIndex(index, rows).search(QUERIES[:5], depth)
    products = QUERIES[:5] @ index.vectors(rows).T
    order = np.argsort(-products.round(4), axis=1, kind="stable")[:, :depth]
    assert found.shape == scores.shape == (5, min(depth, let))
    np.testing.assert_allclose(scores, np.take_along_axis(products, order, axis=1), atol=1e-3)
    if kind == "flat":
        assert np.array_equal(found, rows[order])
    assert all(np.isin(each, rows).all() and len(set(each.tolist())) == len(each) for each in found)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("let", [1, 100, 890])
def test_recall_is_that_of_the_stored_vectors(indexes: dict[str, VectorIndex], kind: str, let: int) -> None:
    """Although the clusters are searched one at a time and the lists of neighbours lead past the filter."""
    rows = np.sort(np.random.default_rng(let).choice(600, min(let, 600), replace=False)).astype(np.int32)
    found, _ = FilteredIndex(indexes[kind], rows).search(QUERIES, 10)
    best = rows[np.argsort(-(QUERIES @ VECTORS[rows].T), axis=1)[:, :10]]
    recall = np.mean([np.isin(ours, theirs).mean() for ours, theirs in zip(found, best)])
    assert recall == 1 if kind in WHOLE else recall >= 0.95


@given(let=st.integers(0, 60), depth=st.integers(1, 70), words=st.sampled_from(["tree bird", "bird 3", "nothing"]))
def test_bm25_behind_a_filter_ranks_as_without_it(let: int, depth: int, words: str) -> None:
    bm25 = BM25.of((f"tree {number % 7} bird {number % 5}" for number in range(60)), 0.9, 0.4)
    rows = np.sort(np.random.default_rng(let).choice(60, let, replace=False)).astype(np.int32)
    found, scores = FilteredBM25(bm25, rows).search([words], depth)
    all_rows, all_scores = bm25.search([words], 60)
    wanted = [(-score, row) for row, score in zip(all_rows[0], all_scores[0]) if row in rows]
    wanted = sorted(wanted)[: min(depth, let)]
    assert found[0][found[0] >= 0].tolist() == [row for _, row in wanted]
    assert scores[0][found[0] >= 0].tolist() == [-score for score, _ in wanted]
