"""Searching an index on a GPU: the exact ranking with its ties, in full fp32, and near it for approximate kinds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import faiss
import numpy as np
import pytest
import torch
from test_index_kinds import KINDS, QUERIES, VECTORS, assert_searched_alike, stored, written

from stillhouse.search import exact_search as of_gpu
from stillhouse.search import vector_index
from stillhouse.search.exact_search import blocks_of, exact_search, gpu_search, on_gpu

Array = np.ndarray
TF32: dict[str, Callable[[], None]] = {
    "the flag": lambda: setattr(torch.backends.cuda.matmul, "allow_tf32", True),
    "medium": lambda: torch.set_float32_matmul_precision("medium"),
}


def searched(queries: Array, vectors: Array, depth: int, device: torch.device, block: int = 0) -> tuple[Array, Array]:
    """`gpu_search` over vectors that are copied to the device in blocks."""
    size = block or len(vectors)
    parts = [
        (start, torch.from_numpy(vectors[start : start + size]).to(device)) for start in range(0, len(vectors), size)
    ]
    return gpu_search(queries, parts, depth, device)


def whole_numbers(rng: np.random.Generator, count: int, width: int = 3) -> Array:
    """Vectors whose products are exact, with many ties."""
    return rng.integers(-2, 3, (count, width)).astype(np.float32)


def ranking(queries: Array, vectors: Array, depth: int) -> tuple[Array, Array]:
    """Rows and products of sorting everything: best first, ties in corpus order."""
    exact = queries.astype(np.int64) @ vectors.astype(np.int64).T
    rows = np.argsort(-exact, axis=1, kind="stable")[:, :depth]
    return rows, np.take_along_axis(exact, rows, axis=1)


def unit_vectors(rng: np.random.Generator, count: int, width: int) -> Array:
    made = rng.standard_normal((count, width))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(
    ("passages", "depth"),
    [(20_000, 1), (20_000, 100), (20_000, 2048), (20_000, 5000), (3000, 3000)],
    ids=["the best alone", "a hundred", "the most of faiss", "more", "all"],
)
def test_any_depth_and_more_queries_than_are_compared_at_once(
    passages: int, depth: int, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(depth)
    monkeypatch.setattr(of_gpu, "GPU_QUERIES", 64)
    vectors, queries = whole_numbers(rng, passages, 8), whole_numbers(rng, 150, 8)
    found, expected = searched(queries, vectors, depth, device, 7000), ranking(queries, vectors, depth)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])


def test_more_queries_and_vectors_than_one_product_takes(device: torch.device) -> None:
    """The sizes are those that a real search uses."""
    rng = np.random.default_rng(1)
    vectors = whole_numbers(rng, of_gpu.GPU_BLOCK + 1000, 8)
    queries = whole_numbers(rng, of_gpu.GPU_QUERIES + 6, 8)
    rows, scores = gpu_search(queries, blocks_of(on_gpu(vectors, device), device), 10, device)
    some = [0, 5, of_gpu.GPU_QUERIES - 1, of_gpu.GPU_QUERIES, of_gpu.GPU_QUERIES + 5]
    expected = ranking(queries[some], vectors, 10)
    np.testing.assert_array_equal(rows[some], expected[0])
    np.testing.assert_array_equal(scores[some], expected[1])


def assert_exact(rows: Array, scores: Array, queries: Array, vectors: Array) -> None:
    """Products are those of float64 to 1e-6, and so is the order: no passage beats the ones before it."""
    exact = queries.astype(np.float64) @ vectors.astype(np.float64).T
    of_rows = np.take_along_axis(exact, rows, axis=1)
    np.testing.assert_allclose(scores, of_rows, rtol=0, atol=1e-6)
    assert all(len(set(each)) == len(each) for each in rows.tolist())
    best = -np.sort(-exact, axis=1)[:, : rows.shape[1]]
    np.testing.assert_allclose(of_rows, best, rtol=0, atol=2e-6)
    assert (np.diff(scores, axis=1) <= 0).all()


@pytest.mark.parametrize("width", [32, 384, 768])
def test_unit_vectors_are_ranked_as_in_float64(width: int, device: torch.device) -> None:
    rng = np.random.default_rng(width)
    vectors, queries = unit_vectors(rng, 5000, width), unit_vectors(rng, 100, width)
    found = searched(queries, vectors, 200, device, 1500)
    assert_exact(*found, queries, vectors)
    expected = exact_search(queries, [(0, vectors)], 200)
    assert (found[0] == expected[0]).mean() > 0.99


@pytest.mark.parametrize("way", TF32)
def test_tf32_is_off_within_the_search_and_allowed_again_after_it(way: str, device: torch.device) -> None:
    """In TF32 the products of these vectors are wrong by up to 1e-4."""
    rng = np.random.default_rng(2)
    vectors, queries = unit_vectors(rng, 4000, 256), unit_vectors(rng, 64, 256)
    try:
        TF32[way]()
        before = torch.backends.cuda.matmul.fp32_precision, torch.get_float32_matmul_precision()
        assert before[0] == "tf32"
        with torch.autocast(device.type, torch.bfloat16):
            found = searched(queries, vectors, 50, device)
        assert (torch.backends.cuda.matmul.fp32_precision, torch.get_float32_matmul_precision()) == before
        if device.type == "cuda":  # or the test would prove nothing
            there = torch.from_numpy(queries).to(device) @ torch.from_numpy(vectors).to(device).T
            wrong = there.cpu().double() - torch.from_numpy(queries).double() @ torch.from_numpy(vectors).double().T
            assert float(wrong.abs().max()) > 1e-5
    finally:
        torch.set_float32_matmul_precision("highest")
    assert_exact(*found, queries, vectors)


@pytest.mark.parametrize("there_is_room", [True, False])
@pytest.mark.parametrize("normal", [True, False])
def test_a_flat_index(
    tmp_path: Path, there_is_room: bool, normal: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vectors are moved to the GPU once, or block by block in every search if they leave no room for it."""
    vectors = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True) if normal else VECTORS
    index = written(tmp_path / "index", stored(tmp_path / "vectors", vectors), "flat")
    monkeypatch.setattr(vector_index, "GPU", device.type)
    monkeypatch.setattr(of_gpu, "GPU_BLOCK", 100)
    if not there_is_room:
        beside = 1 << 60 if device.type == "cuda" else of_gpu.BESIDE
        monkeypatch.setattr(of_gpu, "BESIDE", beside)
        if device.type == "cpu":
            monkeypatch.setattr(vector_index, "on_gpu", lambda vectors, _: vectors)
    assert_searched_alike(index)
    assert isinstance(index._vectors_on_gpu, torch.Tensor) == there_is_room


@pytest.mark.parametrize("rescored", [0, 32])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "flat"])
def test_other_kinds_with_faiss(tmp_path: Path, kind: str, rescored: int) -> None:
    """Those that faiss takes to a GPU give nearly the rankings of the processor; it refuses others with a reason."""
    if not hasattr(faiss, "StandardGpuResources"):
        pytest.skip("faiss-gpu is not installed")
    if not faiss.get_num_gpus():
        pytest.skip("faiss sees no GPU")
    own = {"rescore_multiplier": rescored} if kind == "ivfpq" else {}
    index = written(tmp_path / "index", stored(tmp_path / "vectors", VECTORS), kind, **own)
    refused = index.refused_by_gpu(20)
    if refused:
        assert kind != "ivfsq8" and (kind != "ivfpq" or rescored), refused
        return
    (rows, scores), (expected, others) = index.search(QUERIES, 20, gpu=True), index.search(QUERIES, 20)
    same = [len(np.intersect1d(a, b)) / 20 for a, b in zip(rows, expected)]
    assert np.mean(same) > 0.9, same
    np.testing.assert_allclose(scores[:, :10], others[:, :10], rtol=0.05, atol=0.2)
