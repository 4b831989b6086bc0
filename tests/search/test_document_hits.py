"""Answers that list documents: those of a loop over the whole ranking, however deep it must go."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from stillhouse.core.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.search.documents import best_of_documents, documents_of
from stillhouse.search.searcher import DocumentHit, Searcher
from stillhouse.serving.passages import Passages


@pytest.mark.parametrize("top", [1, 3, 5, 9])
@pytest.mark.parametrize("found", [60, 33])
def test_the_best_documents_are_those_of_the_whole_ranking(top: int, found: int) -> None:
    rng = np.random.default_rng(top)
    # Some documents have most passages, so that a ranking must go deep.
    documents = rng.choice(7, 60, p=[0.9, *[0.1 / 6] * 6])
    ranking = np.stack([rng.permutation(60) for _ in range(8)]).astype(np.int32)
    scores = np.sort(rng.random((8, 60)), axis=1)[:, ::-1].astype(np.float32)
    ranking[:, found:] = -1  # an approximate index may find fewer

    asked: dict[int, list[int]] = {}

    def search(depth: int, queries_W: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        asked[depth] = queries_W.tolist()
        return ranking[queries_W, :depth], scores[queries_W, :depth]

    rows_QT, scores_QT = best_of_documents(search, lambda rows: [f"d{documents[row]}" for row in rows], 8, top, 60)
    for depth, deeper in pairwise(asked):  # a query that has enough is not searched again
        few = [number for number in asked[depth] if len({documents[row] for row in ranking[number, :depth]}) < top]
        assert set(asked[deeper]) <= set(few)
    for number in range(8):
        first: dict[int, tuple[int, float]] = {}
        for row, score in zip(ranking[number, :found].tolist(), scores[number].tolist()):
            first.setdefault(int(documents[row]), (row, score))
        expected = list(first.values())[:top]
        kept = rows_QT[number] >= 0
        assert list(zip(rows_QT[number][kept].tolist(), scores_QT[number][kept].tolist())) == expected


@pytest.mark.parametrize("judged", ["p{}", "a{}"])
def test_search_and_evaluation_know_the_same_documents(
    judged: str, run_step: Callable[..., dict[str, Path]], tiny_model: Path, tmp_path: Path
) -> None:
    text = "the red bird sings . the blue fish swims . the green tree grows . one red tree . "
    rows = [{"passage_id": f"p{n}", "article_id": f"a{n // 2}", "text": f"{2 * text} {n}"} for n in range(4)]
    labels = {"_id": "q", "text": "who sings"}, {"query-id": "q", "corpus-id": judged.format(1), "score": 1}
    for name, lines in (("passages", rows), ("queries", labels[:1]), ("qrels.test", labels[1:])):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    model = run_step("fetch-model", {}, model=str(tiny_model), query_length=16, passage_length=24)["encoder"]
    own = {"source": str(tmp_path), "split_tokens": 16, "dev_fraction": 0.0, "queries": "source"}
    corpus = Corpus.open(run_step("ingest", {"tokenizer": model}, **own)["corpus"])
    names, numbers = documents_of(corpus, range(corpus.passage_count)), corpus.documents
    assert (
        numbers is not None
        and corpus.passage_count > corpus.document_count == len({*names}) == {"p": 4, "a": 2}[judged[0]]
    )
    assert len({*zip(names, numbers.tolist())}) == len({*names}) and judged.format(1) in names
    assert Passages(corpus).documents_of(range(corpus.passage_count)) == names


def test_a_searcher_lists_documents_if_asked_or_judged_so(
    run_step: Callable[..., dict[str, Path]], tiny_model: Path, small_corpus: Path, tmp_path: Path
) -> None:
    model = {"model": str(tiny_model), "query_length": 16, "passage_length": 24}
    retriever = run_step("fetch-model", {}, **model)["encoder"]
    index = run_step("index", {"corpus": small_corpus, "retriever": retriever})["index"]
    searcher = Searcher(small_corpus, retriever, index, Context(work=tmp_path / "work", device="cpu", quiet=True))
    passages = searcher.search("where does the red bird sing", 24)
    assert not any(isinstance(hit, DocumentHit) for hit in passages)
    expected: dict[str, str] = {}
    for hit in passages:
        expected.setdefault(f"a{int(hit.passage_id[1:]) // 3}", hit.passage_id)
    for top in (1, 5, 24):
        hits = searcher.search("where does the red bird sing", top, documents=True)
        assert [(hit.document_id, hit.passage_id) for hit in hits if isinstance(hit, DocumentHit)] == list(
            expected.items()
        )[:top]
        assert [hit.rank for hit in hits] == list(range(1, len(hits) + 1))
