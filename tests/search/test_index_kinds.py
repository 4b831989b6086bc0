"""The kinds of index: files that faiss reads, identical bytes, inner products, recall, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import faiss
import numpy as np
import pytest

from stillhouse.core.errors import InputError
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.search import exact_search, vector_index
from stillhouse.search.embeddings import Embeddings, text_digests, write_segment
from stillhouse.search.index_kinds import open_flat, write_flat
from stillhouse.search.settings import IndexConfig
from stillhouse.search.vector_index import CutVectors, VectorIndex, cut, measure, write_index

KINDS = ["flat", "hnsw", "ivfpq", "ivfsq8", "sq8", "binary_rescored"]
SMALL = {"ivf_nlist": 4, "ivf_nprobe": 4, "pq_m": 16}
RNG = np.random.default_rng(0)
VECTORS = RNG.standard_normal((600, 16)).astype(np.float32) * RNG.uniform(0.5, 2, (600, 1)).astype(np.float32)
QUERIES = RNG.standard_normal((30, 16)).astype(np.float32)


def stored(folder: Path, vectors: np.ndarray, width: int = 0, normalize: bool = False) -> CutVectors:
    texts = [str(n) for n in range(len(vectors))]
    write_segment(folder, text_digests(texts), vectors)
    embeddings = Embeddings([folder], text_digests(texts), vectors.shape[1])
    return CutVectors(embeddings, width or vectors.shape[1], normalize)


def written(folder: Path, vectors: CutVectors, kind: str, **settings: int) -> VectorIndex:
    folder.mkdir()
    own = {**SMALL, **settings} if kind == "ivfpq" else {}
    if kind in ("ivfsq8", "binary_rescored"):
        own = {name: value for name, value in settings.items() if name != "pq_m"}
    config = IndexConfig(kind=kind, **own)  # type: ignore[arg-type]
    write_index(folder, config, vectors, PassageIds([f"p{n}" for n in range(len(vectors))]), 16)
    return VectorIndex(folder)


def test_a_flat_index_is_what_faiss_writes(tmp_path: Path) -> None:
    index = faiss.IndexFlatIP(16)
    index.add(VECTORS)
    faiss.write_index(index, str(tmp_path / "theirs"))
    write_flat(tmp_path / "ours", 600, 16, [(0, VECTORS[:250]), (250, VECTORS[250:])])
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert np.array_equal(open_flat(tmp_path / "theirs", 600, 16), VECTORS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_vectors_give_the_same_bytes_on_any_number_of_threads(tmp_path: Path, kind: str) -> None:
    vectors, threads = stored(tmp_path / "vectors", VECTORS), faiss.omp_get_max_threads()
    try:
        for number in (1, 2):
            faiss.omp_set_num_threads(number)
            written(tmp_path / str(number), vectors, kind)
    finally:
        faiss.omp_set_num_threads(threads)
    for name in ("index.faiss", "ids.parquet", "index.json"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


@pytest.mark.parametrize(
    ("kind", "lowest", "error"),
    [("flat", 1, 1e-5), ("hnsw", 0.95, 1e-5), ("ivfpq", 0.95, 0.3), ("ivfsq8", 0.95, 0.3), ("sq8", 0.95, 0.3),
     ("binary_rescored", 0.9, 0.3)],
)  # fmt: skip
def test_every_kind_ranks_by_inner_product(tmp_path: Path, kind: str, lowest: float, error: float) -> None:
    """The vectors differ in length, so a kind that ranked by distance or cosine would fail."""
    rows, scores = written(tmp_path / "index", stored(tmp_path / "vectors", VECTORS), kind).search(QUERIES, 10)
    exact = QUERIES @ VECTORS.T
    best = np.argsort(-exact, axis=1)[:, :10]
    assert np.mean([len(np.intersect1d(a, b)) / 10 for a, b in zip(rows, best)]) >= lowest
    assert np.abs(scores - np.take_along_axis(exact, rows, axis=1)).max() < error
    assert (np.diff(scores, axis=1) <= 0).all()


def test_ivfpq_without_rescoring_keeps_codes_alone(tmp_path: Path) -> None:
    vectors = stored(tmp_path / "vectors", VECTORS)
    whole, codes = (written(tmp_path / str(best), vectors, "ivfpq", pq_m=4, rescore_multiplier=best) for best in (9, 0))
    [large, small] = [(tmp_path / name / "index.faiss").stat().st_size for name in ("9", "0")]
    assert large - small == pytest.approx(600 * 16, rel=0.05), "a byte a dimension"
    rows, scores = codes.search(QUERIES, 10)
    query, place = np.nonzero(rows >= 0)
    again = (QUERIES[query] * codes.vectors(rows[query, place])).sum(axis=1)
    assert np.allclose(again, scores[query, place], atol=1e-4)
    [close, far] = [np.abs(index.vectors(rows[0]) - VECTORS[rows[0]]).max() for index in (whole, codes)]
    assert close < 0.05 < far


def test_recall_is_measured_against_exact_search_and_written(tmp_path: Path) -> None:
    vectors = stored(tmp_path / "vectors", VECTORS)
    index = written(tmp_path / "index", vectors, "ivfpq", pq_m=2, rescore_multiplier=2)
    best = np.argsort(-(QUERIES @ VECTORS.T), axis=1)
    measured = measure(tmp_path / "index", vectors, (QUERIES, "held-out queries"))
    for depth in (10, 100):
        rows, _ = index.search(QUERIES, depth)
        slow = np.mean([len(set(a[:depth]) & set(b[:depth])) / depth for a, b in zip(rows.tolist(), best.tolist())])
        assert measured.recall[f"recall@{depth}"] == pytest.approx(slow) and 0.05 < slow < 0.99
    about = json.loads((tmp_path / "index" / "index.json").read_text())
    assert about == {
        "kind": "ivfpq", "passages": 600, "width": 16, "model_width": 16, "measured_on": 30,
        "measured_with": "held-out queries", **measured.recall,
        "bytes": (tmp_path / "index" / "index.faiss").stat().st_size,
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_the_vectors_of_an_index_are_those_it_compares(tmp_path: Path, kind: str) -> None:
    """Filters by margin compute a score from a passage's vector; it must equal the score of the search."""
    index = written(tmp_path / "index", stored(tmp_path / "vectors", VECTORS), kind)
    rows, scores = index.search(QUERIES, 10)
    query, place = np.nonzero(rows >= 0)
    again = (QUERIES[query] * index.vectors(rows[query, place])).sum(axis=1)
    assert np.allclose(again, scores[query, place], atol=1e-4)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "flat"])
def test_a_search_on_a_gpu_ranks_as_one_on_the_cpu(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """faiss itself stands in for faiss-gpu, whose indexes have the same methods. It refuses hnsw."""
    index = written(tmp_path / "index", stored(tmp_path / "vectors", VECTORS), kind)
    assert index.refused_by_gpu(10) == "faiss-gpu is not installed" or hasattr(faiss, "StandardGpuResources")

    def to_gpu(found: faiss.Index) -> faiss.Index:
        if isinstance(found, faiss.IndexHNSW):
            raise RuntimeError("clone not supported for this type of Index\nat GpuCloner.cpp")
        return found

    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "index_cpu_to_all_gpus", to_gpu, raising=False)
    monkeypatch.setattr(vector_index, "GPU_DEPTH", 20)
    assert index.refused_by_gpu(21) == "on a GPU it searches to depth 20 at most"
    if kind == "hnsw":
        assert index.refused_by_gpu(20) == "clone not supported for this type of Index"
        return
    assert index.refused_by_gpu(20) == ""
    for ours, theirs in zip(index.search(QUERIES, 20, gpu=True), index.search(QUERIES, 20)):
        assert np.allclose(ours, theirs, atol=1e-5)


def assert_searched_alike(index: VectorIndex) -> None:
    """A flat index gives the processor's ranking on a GPU, to any depth."""
    assert index.refused_by_gpu(3000) == ""
    for depth in (20, len(VECTORS)):
        found, expected = index.search(QUERIES, depth, gpu=True), index.search(QUERIES, depth)
        np.testing.assert_allclose(found[1], expected[1], atol=1e-5)
        assert (found[0] == expected[0]).mean() > 0.99  # rounding may swap scores that are almost equal


@pytest.mark.parametrize("there_is_room", [True, False])
def test_a_flat_index_is_searched_by_pytorch_on_a_gpu(
    tmp_path: Path, there_is_room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The CPU stands in for the GPU: all vectors are moved once, or block by block in every search."""
    index = written(tmp_path / "index", stored(tmp_path / "vectors", VECTORS), "flat")
    monkeypatch.setattr(vector_index, "GPU", "cpu")
    monkeypatch.setattr(exact_search, "GPU_BLOCK", 100)
    if not there_is_room:
        monkeypatch.setattr(vector_index, "on_gpu", lambda vectors, _: vectors)
    assert_searched_alike(index)


@pytest.mark.parametrize(
    "settings", [{"hnsw_m": 8}, {"ivf_nlist": 4}, {"ivf_nprobe": 4}, {"pq_m": 16}, {"rescore_multiplier": 4}]
)
def test_a_setting_of_another_kind_is_refused(settings: dict[str, int]) -> None:
    [name] = settings
    with pytest.raises(
        InputError,
        match=f"{name} is only for kind (hnsw|ivfpq( and (ivfsq8|binary_rescored))?), but kind is flat; leave it out",
    ):
        IndexConfig(**settings)  # type: ignore[arg-type]


def test_binary_vectors_choose_and_int8_vectors_rank(tmp_path: Path) -> None:
    """Compares with a slow version: the passages nearest by sign, ranked by the inner product of int8 vectors."""
    vectors = stored(tmp_path / "vectors", VECTORS)
    index = written(tmp_path / "index", vectors, "binary_rescored", rescore_multiplier=3)
    eight_bits = written(tmp_path / "sq8", vectors, "sq8").vectors(np.arange(600, dtype=np.int32))
    rows, scores = index.search(QUERIES, 10)
    for query, found, given in zip(QUERIES, rows, scores):
        distances = ((VECTORS >= 0) != (query >= 0)).sum(axis=1)
        last = np.sort(distances)[29]
        exact = eight_bits @ query
        sure, possible = np.flatnonzero(distances < last), np.flatnonzero(distances <= last)
        assert np.isin(found, possible).all()  # any of those at the last distance may be among the 30
        worst = given.min()
        assert np.isin(sure[exact[sure] > worst + 1e-4], found).all()
        assert np.allclose(given, exact[found], atol=1e-4)
    assert len(np.unique(rows)) > 100


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "flat"])
def test_a_file_that_is_cut_off_or_of_another_index_is_refused(tmp_path: Path, kind: str) -> None:
    vectors = stored(tmp_path / "vectors", VECTORS)
    written(tmp_path / "index", vectors, kind)
    path = tmp_path / "index" / "index.faiss"
    whole = path.read_bytes()
    fewer = stored(tmp_path / "others", VECTORS[:300])
    written(tmp_path / "fewer", fewer, kind)
    other = (tmp_path / "fewer" / "index.faiss").read_bytes()
    for content in (whole[: len(whole) // 2], whole[:3], b"", other):
        path.unlink()  # shortening a mapped file in place kills the process that mapped it
        path.write_bytes(content)
        with pytest.raises(InputError, match="is not an index of 600 vectors of width 16; run `stillhouse index`"):
            VectorIndex(tmp_path / "index").search(QUERIES, 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"pq_m": 3}, "choose one of 1, 2, 4, 8, 16"), ({"ivf_nlist": 601}, "the corpus has 600 passages")],
)
def test_settings_that_do_not_fit_are_named(tmp_path: Path, settings: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        written(tmp_path / "index", stored(tmp_path / "vectors", VECTORS), "ivfpq", **settings)


@pytest.mark.parametrize("normalize", [True, False])
def test_a_narrow_index_holds_the_first_dimensions(tmp_path: Path, normalize: bool) -> None:
    index = written(tmp_path / "index", stored(tmp_path / "vectors", VECTORS, 5, normalize), "flat")
    narrow = VECTORS[:, :5].astype(np.float64)
    narrow = narrow / np.linalg.norm(narrow, axis=1, keepdims=True) if normalize else narrow
    assert index.width == 5 and index.model_width == 16
    queries = cut(QUERIES, 5, normalize)
    rows, scores = index.search(queries, 3)
    exact = queries.astype(np.float64) @ narrow.T
    assert np.allclose(scores, np.sort(exact, axis=1)[:, ::-1][:, :3], atol=1e-5)
    assert np.array_equal(rows, np.argsort(-exact, axis=1)[:, :3])
