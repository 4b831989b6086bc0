"""Figures of documents: those of a slow fold, measured by ir_measures; dev queries choose by the same."""

from __future__ import annotations

from pathlib import Path

import ir_measures
import numpy as np
import pytest

from stillhouse.core.artifacts import write_manifest
from stillhouse.corpus.store import Corpus, write_tables
from stillhouse.evaluation.figures import measure_runs
from stillhouse.evaluation.measures import parse_measures
from stillhouse.evaluation.relevance import JudgedQueries, never_negative
from stillhouse.evaluation.runs import write_run

NAMES = ("RR@10", "nDCG@10", "R@3")


@pytest.fixture
def judged(tmp_path: Path) -> tuple[Corpus, np.ndarray]:
    """A corpus of 8 documents with 4 passages each, and a ranking of its passages for each of 12 queries."""
    rng = np.random.default_rng(0)
    rows = range(32)
    passages = {"passage_id": [f"p{n}" for n in rows], "title": [""] * 32, "text": [f"text {n}" for n in rows]}
    passages |= {"article_id": [f"d{n // 4}" for n in rows], "section": [""] * 32, "position": [n % 4 for n in rows]}
    ids = [f"q{n}" for n in range(12)]
    pairs = [(id, f"p{n}", int(rng.integers(0, 3))) for id in ids for n in rng.choice(32, 5, replace=False)]
    pairs += [(id, "p7", 2) for id in ids if (id, "p7") not in {pair[:2] for pair in pairs}]
    columns: dict[str, list[object]] = dict(zip(("query_id", "passage_id", "relevance"), map(list, zip(*pairs))))
    split = {"split": ["test"] * 6 + ["dev"] * 6}
    of = dict(zip(ids, split["split"]))
    columns["split"] = [of[str(id)] for id in columns["query_id"]]
    queries = {"query_id": ids, "text": [f"question {id}" for id in ids]} | split
    write_tables(tmp_path, {"passages": passages, "queries": queries, "qrels": columns})
    write_manifest(tmp_path, "ingest", {}, {}, {"documents": 8})
    ranking = np.stack([rng.permutation(32)[:20] for _ in ids]).astype(np.int32)
    return Corpus.open(tmp_path), ranking


def folded(
    corpus: Corpus, ranking: np.ndarray, split: str
) -> tuple[dict[str, dict[str, int]], dict[str, dict[str, float]]]:
    qrels: dict[str, dict[str, int]] = {}
    for query, passage, relevance in corpus.qrels_of(split)[["query_id", "passage_id", "relevance"]].to_numpy():
        document, of = f"d{int(passage[1:]) // 4}", qrels.setdefault(query, {})
        of[document] = max(of.get(document, 0), relevance)
    run: dict[str, dict[str, float]] = {}
    for number in [int(query[1:]) for query in qrels]:
        for rank, row in enumerate(ranking[number]):
            run.setdefault(f"q{number}", {}).setdefault(f"d{row // 4}", -float(rank))
    return qrels, run


def test_figures_are_those_of_documents_with_those_of_passages_beside(
    judged: tuple[Corpus, np.ndarray], tmp_path: Path
) -> None:
    corpus, ranking = judged
    scores = -np.arange(20, dtype=np.float32) * np.ones((6, 1), np.float32)
    write_run(tmp_path / "test.trec", [f"q{n}" for n in range(6)], corpus.passage_ids, ranking[:6], scores, "s")
    [found] = measure_runs(corpus, {"s": tmp_path}, "test", parse_measures(NAMES))
    expected = ir_measures.calc_aggregate(parse_measures(NAMES), *folded(corpus, ranking, "test"))
    assert found.means()["s"] == pytest.approx({str(measure): value for measure, value in expected.items()})
    assert found.passage_means()["s"] != found.means()["s"]
    best = found.runs["s"][found.runs["s"]["query_id"] == "q0"]["passage_id"]
    assert [id[1:] for id in best] == [
        str(row) for n, row in enumerate(ranking[0]) if row // 4 not in ranking[0][:n] // 4
    ]


def test_dev_ranks_and_negatives_know_documents(judged: tuple[Corpus, np.ndarray]) -> None:
    corpus, ranking = judged
    queries = JudgedQueries(corpus)
    qrels, run = folded(corpus, ranking, "dev")
    values = {value.query_id: value.value for value in ir_measures.iter_calc(parse_measures("RR@10"), qrels, run)}
    assert queries.reciprocal_ranks(ranking[6:]).tolist() == pytest.approx([values[id] for id in queries.query_ids])
    offsets, rows = never_negative(corpus, queries.query_ids)
    for number, id in enumerate(queries.query_ids):
        right = {f"d{row // 4}" for row in rows[offsets[number] : offsets[number + 1]]}
        assert right == {document for document, relevance in qrels[id].items() if relevance}
        assert offsets[number + 1] - offsets[number] == 4 * len(right), "whole documents"


def test_a_document_competes_with_its_best_passage_alone(judged: tuple[Corpus, np.ndarray]) -> None:
    corpus, ranking = judged
    queries, rng = JudgedQueries(corpus), np.random.default_rng(1)
    rows_QK = np.where(rng.random(ranking[6:].shape) < 0.2, -1, ranking[6:])
    scores_QK = rng.normal(size=rows_QK.shape)
    kept_QK = queries.judged_best(rows_QK, scores_QK)
    for rows, scores, kept in zip(rows_QK, scores_QK, kept_QK):
        best: dict[int, int] = {}
        for place in np.argsort(-scores):
            if rows[place] >= 0:
                best.setdefault(int(rows[place]) // 4, int(place))
        assert set(np.flatnonzero(kept)) == set(best.values())
