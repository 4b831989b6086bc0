"""Answers that list documents: those of a loop over the whole ranking, however deep it must go."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from stillhouse.core.context import Context
from stillhouse.search.documents import best_of_documents
from stillhouse.search.searcher import DocumentHit, Searcher


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
