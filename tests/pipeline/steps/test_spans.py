"""Spans of passages as queries, compared with a search that ranks all passages one query at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from stillhouse.core.artifacts import read_manifest
from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.models.encoder import BiEncoder
from stillhouse.models.settings import InferenceConfig
from stillhouse.search.searcher import query_vectors
from stillhouse.search.spans import WORDS, draw_spans, ranks_of_spans
from stillhouse.search.vector_index import VectorIndex

Run = Callable[..., dict[str, Path]]


@pytest.mark.parametrize("documents", [None, np.arange(24) // 5])
def test_a_span_is_to_find_its_passage_or_document(
    dense: dict[str, Path], tmp_path: Path, documents: np.ndarray | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Corpus, "documents", documents)
    corpus, encoder, index = (
        Corpus.open(dense["corpus"]),
        BiEncoder.load(dense["retriever"]),
        VectorIndex(dense["index"]),
    )
    context, config = Context(tmp_path, "cpu", quiet=True), InferenceConfig(precision="fp32")
    spans = texts, rows = draw_spans(corpus)
    passages = corpus.passages_at(np.arange(24), "text")["text"].tolist()
    assert len(rows) > 10 and all(text in passages[row] for text, row in zip(texts, rows))
    assert {len(text.split()) for text in texts} == {WORDS}
    vectors = index.vectors(np.arange(24, dtype=np.int32)).astype(np.float64)
    own = np.arange(24) if documents is None else documents
    slow = []
    for row, query in zip(rows, query_vectors(encoder, index, texts, context, config)):
        ranking = list(dict.fromkeys(own[np.argsort(-(vectors @ query), kind="stable")].tolist()))
        rank = ranking.index(own[row]) + 1
        slow.append(1 / rank if rank <= 10 else 0.0)
    found = ranks_of_spans(spans, encoder, index, corpus, context, config)
    np.testing.assert_allclose(found, slow)
    assert 0 < found.mean() < 1


def test_short_passages_have_no_spans(dense: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stillhouse.search.spans.WORDS", 50)
    encoder, index = BiEncoder.load(dense["retriever"]), VectorIndex(dense["index"])
    context, config = Context(tmp_path, "cpu", quiet=True), InferenceConfig(precision="fp32")
    corpus = Corpus.open(dense["corpus"])
    assert ranks_of_spans(draw_spans(corpus), encoder, index, corpus, context, config).tolist() == []


def test_without_labels_a_retriever_competes_only_if_it_gains_on_spans(
    run_step: Run, small_corpus: Path, made_questions: Path, retriever: Path, tiny_model: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    settings = {"model": str(tiny_model), "pooling": "cls", "query_length": 16, "passage_length": 24}
    other = run_step("fetch-model", {}, "other", **settings)["encoder"]
    measured: list[float] = []
    monkeypatch.setattr("stillhouse.search.spans.ranks_of_spans", lambda *_: np.array([measured.pop(0)]))
    for corpus, gain, least, competes in (
        (made_questions, 0.05, 0.1, False),
        (made_questions, 0.15, 0.1, True),
        (made_questions, -0.05, None, True),
        (small_corpus, -0.05, 0.1, True),
    ):
        name = f"{corpus.name} {gain} {least}"
        inputs = {"corpus": corpus, "bm25": run_step("bm25", {"corpus": corpus}, name, negatives_depth=5)["bm25"]}
        for each, folder in (("start", retriever), ("other", other)):
            made = run_step("index", {"corpus": corpus, "retriever": folder}, f"{name} {each}", precision="fp32")
            inputs |= {f"candidates/{each}": folder, f"indexes/{each}": made["index"]}
        measured[:] = [0.5, 0.5 + gain]
        best = run_step("select-best", inputs, f"{name} best", span_gain=least, fusion="bm25")
        facts = read_manifest(best["retriever"]).facts
        assert ("other" in facts["dev_rr10"]) == competes, name
        used = corpus == made_questions and least is not None
        assert len(measured) == (0 if used else 2)
        assert facts.get("span_gains") == (pytest.approx({"other": gain}) if used else None)
