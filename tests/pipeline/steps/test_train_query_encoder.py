"""The query tower trained alone: passage vectors stay, and the result searches the old index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from stillhouse.core.artifacts import MANIFEST, read_manifest
from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.evaluation.runs import read_run
from stillhouse.models.encoder import BiEncoder

Run = Callable[..., dict[str, Path]]
TUNING = {"max_steps": 60, "epochs": None, "batch_size": 12, "learning_rate": 0.003, "temperature": 0.1}
TUNING |= {"precision": "fp32"}


def test_only_the_query_tower_changes_and_the_old_index_is_searched(
    run_step: Run, indexed: dict[str, Path], small_corpus: Path
) -> None:
    made = run_step("train-query-encoder", indexed, **TUNING)
    facts = read_manifest(made["retriever"]).facts
    assert facts["end"]["nDCG@10"] > facts["start"]["nDCG@10"] and facts["kept_step"] > 0
    old, new = BiEncoder.load(indexed["encoder"]), BiEncoder.load(made["retriever"])
    before, passages, queries = (
        tower.state_dict() for tower in (old.tower("passage"), new.tower("passage"), new.tower("query"))
    )
    assert all(before[name].equal(passages[name]) for name in before)
    assert [name for name in before if not before[name].equal(queries[name])]
    for path in indexed["old_index"].iterdir():
        if path.name != MANIFEST:
            assert (made["index"] / path.name).read_bytes() == path.read_bytes()

    # sentence-transformers reads both towers, and the passage tower is the old one.
    opened = Corpus.open(small_corpus)
    texts, asked = passage_texts(opened), opened.queries_of("test")
    was, now = (SentenceTransformer(str(folder), device="cpu") for folder in (indexed["encoder"], made["retriever"]))
    documents = was.encode(texts)
    np.testing.assert_allclose(now.encode_document(texts), documents, atol=1e-6)
    exact = now.encode_query(list(asked["text"])) @ documents.T
    found = {"corpus": small_corpus, "retriever": made["retriever"], "index": made["index"]}
    run = read_run(run_step("retrieve", found, depth=24, precision="fp32")["run"] / "test.trec")
    for query, scores in zip(asked["query_id"], exact):
        np.testing.assert_allclose(run[run["query_id"] == query]["score"], np.sort(scores)[::-1], atol=1e-5)


def test_a_training_without_improvement_keeps_the_start(run_step: Run, indexed: dict[str, Path]) -> None:
    made = run_step("train-query-encoder", indexed, **TUNING | {"learning_rate": 0.0})
    manifest = read_manifest(made["retriever"])
    assert manifest.facts["kept_step"] == 0 and not manifest.facts["helps"]
    assert manifest.facts["gain"]["difference"] == 0
    assert not (made["retriever"] / "query").exists(), "it is the start, with one tower"


def test_training_works_with_an_index_sample_and_a_teacher(
    run_step: Run, indexed: dict[str, Path], small_corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hard negatives are used whatever the sample; with a teacher that knows the answers, dev improves too."""
    monkeypatch.setattr("stillhouse.training.fixed_passages.RUN", 4)
    bm25 = run_step("bm25", {"corpus": small_corpus}, negatives_depth=8)
    taught = {"corpus": small_corpus, "negatives": bm25["negatives"], "bm25": bm25["bm25"]}
    searched = {"retriever": indexed["encoder"], "index": indexed["old_index"]}
    teacher = run_step("score-pairs", taught | searched, depth=8, kind="best")
    inputs = indexed | {"negatives": bm25["negatives"], "teacher": teacher["teacher"]}
    made = run_step(
        "train-query-encoder", inputs, **TUNING, passages_at_once=8, negatives_per_query=3, negatives_depth=8
    )
    facts = read_manifest(made["retriever"]).facts
    assert facts["end"]["nDCG@10"] > facts["start"]["nDCG@10"]
    with pytest.raises(InputError, match="give them as --negatives"):
        run_step("train-query-encoder", indexed | {"teacher": teacher["teacher"]}, "refused", **TUNING)
