"""Indexes of every kind, searched by every step: what they must find, bad questions, foreign indexes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from indexed_corpora import FP32, Run, contents, corpus_of

from stillhouse.core.artifacts import read_manifest, write_manifest
from stillhouse.core.context import Context
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.runs import read_run
from stillhouse.models.encoder import BiEncoder
from stillhouse.search.searcher import Searcher
from stillhouse.training.negatives import Negatives


@pytest.mark.parametrize("kind", ["flat", "hnsw", "ivfsq8", "sq8", "binary_rescored"])
def test_every_kind_is_searched_by_every_step(
    run_step: Run, small_corpus: Path, retriever: Path, tmp_path: Path, kind: str
) -> None:
    inputs = {"corpus": small_corpus, "retriever": retriever}
    index = run_step("index", inputs, kind=kind, truncate_dim=20, **FP32)["index"]
    facts = read_manifest(index).facts
    assert facts["kind"] == kind and facts["width"] == 20 and facts["bytes"] == (index / "index.faiss").stat().st_size
    assert ("recall@10" in facts) == (kind != "flat")
    assert kind == "flat" or (facts["recall@10"] > 0.8 and facts["measured_with"] == "held-out queries")
    run = run_step("retrieve", inputs | {"index": index}, depth=50, **FP32)["run"]
    lines = read_run(run / "test.trec")
    assert lines.groupby("query_id").size().tolist() == [24] * 6
    negatives = Negatives.read(run_step("mine", inputs | {"index": index}, negatives_depth=4, **FP32)["negatives"])
    assert negatives.rows_QD.shape[1] == 4 and (negatives.rows_QD >= 0).all()
    searcher = Searcher(small_corpus, retriever, index, Context(tmp_path, "cpu", quiet=True))
    hits = searcher.search("where does the red bird one sing", 30)
    assert len(hits) == 24 and [hit.rank for hit in hits] == list(range(1, 25))
    first = lines[lines["query_id"] == lines["query_id"].iloc[0]]
    question = Corpus.open(small_corpus).queries.set_index("query_id")["text"][first["query_id"].iloc[0]]
    best = searcher.search(question, 1)[0]
    assert best.score == pytest.approx(float(first["score"].iloc[0]), abs=1e-5)
    assert best.score <= (1.01 if kind.endswith("sq8") else 1.00001)


def test_an_index_does_not_depend_on_the_clock(run_step: Run, small_corpus: Path, retriever: Path) -> None:
    inputs = {"corpus": small_corpus, "retriever": retriever}
    one, two = (run_step("index", inputs, name, kind="hnsw", **FP32)["index"] for name in ("one", "two"))
    assert contents(one) == contents(two)


def test_an_index_of_another_model_or_corpus_is_refused(
    run_step: Run, small_corpus: Path, retriever: Path, tiny_model: Path, tmp_path: Path
) -> None:
    index = run_step("index", {"corpus": small_corpus, "retriever": retriever}, **FP32)["index"]
    for step in ("retrieve", "mine"):
        with pytest.raises(InputError, match="--index was made from another retriever"):
            run_step(step, {"corpus": small_corpus, "retriever": tiny_model, "index": index})
    other = corpus_of(small_corpus, tmp_path / "other", Corpus.open(small_corpus).passages.iloc[:20])
    with pytest.raises(InputError, match="--index was made from another corpus"):
        run_step("retrieve", {"corpus": other, "retriever": retriever, "index": index})


def test_a_model_of_another_width_is_refused_before_the_search(
    run_step: Run, small_corpus: Path, retriever: Path, tmp_path: Path
) -> None:
    index = run_step("index", {"corpus": small_corpus, "retriever": retriever}, **FP32)["index"]
    about = json.loads((index / "index.json").read_text())
    (index / "index.json").write_text(json.dumps(about | {"model_width": 48}))
    write_manifest(index, "index", {}, read_manifest(index, verify=False).inputs, {})
    with pytest.raises(InputError, match="have 32 dimensions, but the index was made by a model with 48"):
        Searcher(small_corpus, retriever, index, Context(tmp_path, "cpu", quiet=True))


def test_a_query_tower_that_computes_nan_is_refused(
    run_step: Run, small_corpus: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """Otherwise the recall of such an index would be 0, which looks like a valid figure."""
    encoder = BiEncoder.load(tiny_model, towers="separate")
    with torch.no_grad():
        encoder.tower("query").encoder.get_input_embeddings().weight.fill_(float("nan"))  # type: ignore[union-attr, operator]
    broken = tmp_path / "broken"
    broken.mkdir()
    encoder.save(broken)
    inputs = {"corpus": small_corpus, "retriever": broken}
    with pytest.raises(InputError, match="is not finite: the model is damaged"):
        run_step("index", inputs, kind="hnsw", **FP32)
