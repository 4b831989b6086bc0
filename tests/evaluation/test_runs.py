from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stillhouse.core.errors import InputError
from stillhouse.corpus.passage_ids import PassageIds
from stillhouse.evaluation.measures import parse_measures, per_query
from stillhouse.evaluation.rankings import order_by_score
from stillhouse.evaluation.runs import ranked_rows, read_run, strictly_falling, write_run

QRELS = ["query_id", "passage_id", "relevance"]
PASSAGES = PassageIds(["p0", "p1", "p2", "p3"])
finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


def slow_order(scores: list[float], rows: list[int]) -> list[int]:
    return [row for _, row in sorted((-score, row) for score, row in zip(scores, rows) if row >= 0)]


@given(st.data())
def test_order_is_score_then_corpus_order_then_padding(data: st.DataObject) -> None:
    depth = data.draw(st.integers(1, 8))
    scores = data.draw(arrays(np.float32, (3, depth), elements=st.sampled_from([-2.0, 0.0, 0.5, 1e9])))
    rows = np.stack([data.draw(st.permutations(range(depth))) for _ in range(3)]).astype(np.int32)
    rows[data.draw(arrays(bool, (3, depth)))] = -1
    ordered_scores, ordered_rows = order_by_score(scores, rows)
    for query in range(3):
        expected = slow_order(scores[query].tolist(), rows[query].tolist())
        assert ordered_rows[query].tolist() == expected + [-1] * (depth - len(expected))
        by_row = dict(zip(rows[query].tolist(), scores[query].tolist()))
        assert ordered_scores[query, : len(expected)].tolist() == [by_row[row] for row in expected]


rankings = arrays(np.float32, (3, 6), elements=st.one_of(finite32, st.sampled_from([0.0, -0.0, 0.5, 1e30])))


@settings(max_examples=200)
@given(rankings, st.lists(st.integers(0, 6), min_size=3, max_size=3))
def test_written_scores_are_strictly_decreasing_and_otherwise_unchanged(scores: np.ndarray, length: list[int]) -> None:
    scores = -np.sort(-scores, axis=1)
    written = strictly_falling(scores, np.array(length))
    assert written.dtype == np.float32
    for query in range(3):
        given_scores, found = scores[query, : length[query]], written[query, : length[query]]
        expected = given_scores.copy()
        for i in range(1, len(expected)):  # the rule, applied to one score at a time
            expected[i] = min(expected[i], np.nextafter(expected[i - 1], np.float32(-np.inf)))
        if np.isfinite(expected).all():
            assert found.tolist() == expected.tolist()
        assert np.isfinite(found).all() and (np.diff(found.astype(np.float64)) < 0).all()
        assert np.array_equal(written[query, length[query] :], scores[query, length[query] :])


@settings(max_examples=50)
@given(rankings)
def test_scores_read_back_exactly(tmp_path_factory: pytest.TempPathFactory, scores: np.ndarray) -> None:
    path = tmp_path_factory.mktemp("run") / "test.trec"
    rows = np.tile(np.arange(6, dtype=np.int32), (3, 1))
    write_run(path, ["a", "b", "c"], PassageIds([f"p{i}" for i in range(6)]), rows, scores, "bm25")
    read = read_run(path)
    ordered_scores, ordered_rows = order_by_score(scores, rows)
    assert read["score"].dtype == np.float32
    assert read["passage_id"].tolist() == [f"p{row}" for row in ordered_rows.ravel()]
    assert read["score"].tolist() == strictly_falling(ordered_scores, np.full(3, 6)).ravel().tolist()


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_evaluators_that_sort_by_score_see_our_ranking(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    """With tied scores and ids in any order, trec_eval gets the same values from the file as we do."""
    path = tmp_path_factory.mktemp("run") / "test.trec"
    ids = data.draw(st.permutations([f"p{i}" for i in range(8)]))
    scores = data.draw(
        arrays(np.float32, (2, 8), elements=st.sampled_from([-1.0, 0.0, -0.0, 0.25, 7e8, -3.4028235e38]))
    )
    rows = np.stack([data.draw(st.permutations(range(8))) for _ in range(2)]).astype(np.int32)
    rows[data.draw(arrays(bool, (2, 8)))] = -1
    write_run(path, ["a", "b"], PassageIds(ids), rows, scores, "s")
    relevance = data.draw(arrays(np.int64, (2, 8), elements=st.integers(0, 3)))
    qrels = {query: {f"p{i}": int(relevance[q, i]) for i in range(8)} for q, query in enumerate("ab")}
    with path.open() as file:
        run = pytrec_eval.parse_run(file)
    theirs = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank", "ndcg_cut", "map", "recall"}).evaluate(run)
    table = pd.DataFrame([(q, p, r) for q, of in qrels.items() for p, r in of.items()], columns=QRELS)
    ours = per_query(table, read_run(path), parse_measures("RR nDCG@5 AP R@5"))
    for query in theirs:
        names = {"RR": "recip_rank", "nDCG@5": "ndcg_cut_5", "AP": "map", "R@5": "recall_5"}
        for name, their_name in names.items():
            assert ours.loc[query, name] == pytest.approx(theirs[query][their_name], abs=1e-12)


def test_the_file_is_a_trec_run(tmp_path: Path) -> None:
    path = tmp_path / "test.trec"
    rows = np.array([[2, 0, -1], [-1, -1, -1], [3, 1, 0]], dtype=np.int32)
    scores = np.array([[0.1, 0.1, 9], [1, 2, 3], [-1.5, 2, 0]], dtype=np.float32)
    write_run(path, ["q1", "q2", "p0"], PASSAGES, rows, scores, "bm25")
    assert path.read_text() == (
        "q1 Q0 p0 1 0.100000001 bm25\n"
        "q1 Q0 p2 2 0.099999994 bm25\n"
        "p0 Q0 p1 1 2 bm25\n"
        "p0 Q0 p0 2 0 bm25\n"
        "p0 Q0 p3 3 -1.5 bm25\n"
    )


@pytest.mark.parametrize(
    "content",
    [
        "q Q0 p0 one 1.0 s\n",
        "q Q0 p0 1\n",
        "q Q0 p0 1 1.0 ",  # cut off
        "q Q0 p0 1 1.0 \n",
        "q Q0 p0 1 1.0 s extra\n",
        "q Q0 p0 1 high s\n",
        b"\xff\xfe q\n",
    ],
)
def test_an_invalid_run_file_is_refused(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "test.trec"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match="TREC run file"):
        read_run(path)


def test_missing_files_and_unknown_passages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_run(tmp_path / "none.trec")
    (tmp_path / "test.trec").write_text("q Q0 ghost 1 1.0 s\n")
    with pytest.raises(InputError, match="'ghost'"):
        ranked_rows(tmp_path / "test.trec", PASSAGES)


def read_text(path: Path, text: str) -> pd.DataFrame:
    path.write_text(text)
    return read_run(path)


def test_a_run_of_another_tool_gives_one_ranking_per_query(tmp_path: Path) -> None:
    """The reader accepts tabs, repeated spaces, scattered lines of a query, ranks from 0 with gaps, and equal ranks."""
    read = read_text(
        tmp_path / "r", " b\tQ0  p1 0 9.5 s\r\na Q0 p0 7 1 s\n\nb Q0 p2 4 9 s\na Q0 p3 2 3e0 s \na Q0 p2 7 2 s\n"
    )
    assert list(zip(read["query_id"], read["passage_id"], read["rank"], read["score"])) == [
        ("b", "p1", 1, 9.5),
        ("b", "p2", 2, 9.0),
        ("a", "p3", 1, 3.0),
        ("a", "p2", 2, 2.0),
        ("a", "p0", 3, 1.0),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q Q0 p0 1 nan s\n", "'p0' for query 'q' has a score that is not finite"),
        ("q Q0 p0 1 inf s\nq Q0 p1 2 1 s\n", "'p0' for query 'q' has a score that is not finite"),
        ("q Q0 p0 1 1 s\nq Q0 p1 2 -1e39 s\n", "'p1' for query 'q' has a score that is not finite"),
        ("q Q0 p0 1 3 s\nr Q0 p0 1 3 s\nq Q0 p1 2 2 s\nq Q0 p0 3 1 s\n", "'p0' for query 'q' is listed twice"),
        ("q Q0 p0 1 3 s\nr Q0 p0 1 9 s\nr Q0 p1 2 10 s\n", "'p1' for query 'r' has a score higher than"),
    ],
)
def test_an_ambiguous_run_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_text(tmp_path / "r", text)
