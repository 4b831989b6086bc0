"""Exact search compared with sorting all scores, with many ties."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhouse.models.acceleration.replaced import can_pack
from stillhouse.search.exact_search import FEW, exact_search, gpu_search, inner_products, packed, unpacked


def blocks(vectors: np.ndarray, size: int) -> list[tuple[int, np.ndarray]]:
    return [(start, vectors[start : start + size]) for start in range(0, len(vectors), size)]


CPU = torch.device("cpu")


def as_on_a_gpu(queries: np.ndarray, found: list[tuple[int, np.ndarray]], depth: int) -> tuple[np.ndarray, np.ndarray]:
    """`gpu_search` without a GPU: PyTorch computes the same on any device."""
    return gpu_search(queries, [(start, torch.from_numpy(block)) for start, block in found], depth, CPU)


Search = Callable[[np.ndarray, list[tuple[int, np.ndarray]], int], tuple[np.ndarray, np.ndarray]]
BOTH = pytest.mark.parametrize("exact_search", [exact_search, as_on_a_gpu])


SMALL_SEARCHES = given(
    seed=st.integers(0, 2**32 - 1),
    passages=st.integers(1, 90),
    block=st.integers(1, 40),
    depth=st.integers(1, 20),
    count=st.sampled_from([1, 3, 140]),
)


@BOTH
@settings(max_examples=60, deadline=None)
@SMALL_SEARCHES
def test_rankings_are_those_of_sorting_everything(
    exact_search: Search, seed: int, passages: int, block: int, depth: int, count: int
) -> None:
    """Products of small whole numbers are exact, and many are equal."""
    rng = np.random.default_rng(seed)
    vectors = rng.integers(-2, 3, (passages, 3)).astype(np.float32)
    queries = rng.integers(-2, 3, (count, 3)).astype(np.float32)
    depth = min(depth, passages)
    rows, scores = exact_search(queries, blocks(vectors, block), depth)
    exact = queries.astype(np.int64) @ vectors.astype(np.int64).T
    for query in range(count):
        order = sorted(range(passages), key=lambda row: (-exact[query, row], row))[:depth]
        assert rows[query].tolist() == order
        assert scores[query].tolist() == exact[query, order].tolist()


@BOTH
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    block=st.integers(1, 40),
    depth=st.integers(1, 12),
    count=st.sampled_from([1, 3, 140]),
    rising=st.booleans(),
)
def test_scores_a_last_bit_apart_are_reported_apart(
    exact_search: Search, seed: int, block: int, depth: int, count: int, rising: bool
) -> None:
    """Every score is 1 + n / 2^23 with n below 60, exact in float32: neighbours are 1.2e-7 apart, all within 7e-6.

    `rising` puts better scores later, so that each block has some that beat the last one kept by a single bit.
    """
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, 60, 80)
    vectors = np.stack([np.ones(80), np.sort(steps) if rising else steps], axis=1).astype(np.float32)
    queries = np.tile(np.array([1, 2.0**-23], dtype=np.float32), (count, 1))
    rows, scores = exact_search(queries, blocks(vectors, block), depth)
    exact = queries.astype(np.float64) @ vectors.astype(np.float64).T
    assert len(np.unique(exact[0].astype(np.float32))) == len(np.unique(exact[0]))
    for query in range(count):
        order = sorted(range(80), key=lambda row: (-exact[query, row], row))[:depth]
        assert rows[query].tolist() == order
        assert scores[query].tolist() == exact[query, order].tolist()


@pytest.mark.parametrize("count", [1, 2, 9])
def test_copies_of_a_passage_have_one_score_wherever_they_stand(count: int) -> None:
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((1003, 48)).astype(np.float32)
    copies = [0, 5, 17, 499, 500, 511, 777, 1000, 1002]
    vectors[copies] = 10 * vectors[0]
    queries = np.repeat(vectors[:1], count, axis=0) + rng.standard_normal((count, 48)).astype(np.float32) / 10
    rows, scores = exact_search(queries, blocks(vectors, 500), 5)
    assert (rows == copies[:5]).all()
    assert (scores == scores[:, :1]).all()


@given(
    st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=2),
    st.lists(st.integers(0, 2**31 - 1), min_size=2, max_size=2),
)
def test_packed_candidates_are_ordered_by_score_then_row(scores: list[float], rows: list[int]) -> None:
    keys = packed(torch.tensor(scores, dtype=torch.float32), torch.tensor(rows))
    better = (-scores[0], rows[0]) < (-scores[1], rows[1])
    assert (keys[0] < keys[1]) == better
    found_rows, found_scores = unpacked(keys)
    assert found_rows.tolist() == rows and found_scores.tolist() == scores


@BOTH
def test_no_queries_and_no_depth(exact_search: Search) -> None:
    vectors = np.ones((3, 2), dtype=np.float32)
    assert exact_search(np.empty((0, 2), np.float32), blocks(vectors, 2), 2)[0].shape == (0, 2)
    assert exact_search(vectors, blocks(vectors, 2), 0)[0].shape == (3, 0)


@pytest.mark.skipif(not can_pack(torch.float32, torch.device("cpu")), reason="oneDNN does not compute fp32 here")
@pytest.mark.parametrize("width", [3, 48, 100, 384, 1024])
@pytest.mark.parametrize("size", [8, 50, 1003])
def test_a_product_is_the_same_beside_few_and_many_queries(width: int, size: int) -> None:
    rng = np.random.default_rng(2)
    vectors = rng.standard_normal((size, width)).astype(np.float32)
    queries = rng.standard_normal((128, width)).astype(np.float32)
    many = inner_products(queries, vectors)
    for count in (8, FEW, FEW + 8):
        np.testing.assert_array_equal(inner_products(queries[:count], vectors), many[:count])
