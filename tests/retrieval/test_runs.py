from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from stillhouse.errors import InputError
from stillhouse.retrieval.runs import order_by_score, read_run, reordered, top_rows, write_run

PASSAGES = ["p0", "p1", "p2", "p3"]
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


@settings(max_examples=200)
@given(arrays(np.float32, (2, 4), elements=finite32, fill=st.nothing()))
def test_float32_scores_read_back_exactly(tmp_path_factory: pytest.TempPathFactory, scores: np.ndarray) -> None:
    path = tmp_path_factory.mktemp("run") / "test.trec"
    rows = np.tile(np.arange(4, dtype=np.int32), (2, 1))
    write_run(path, ["a", "b"], PASSAGES, rows, scores, "bm25")
    read = read_run(path)
    found = {(q, p): s for q, p, s in zip(read["query_id"], read["passage_id"], read["score"])}
    assert read["score"].dtype == np.float32
    for query, name in enumerate("ab"):
        for row in range(4):
            assert found[name, PASSAGES[row]] == scores[query, row]


def test_the_file_is_a_trec_run(tmp_path: Path) -> None:
    path = tmp_path / "test.trec"
    rows = np.array([[2, 0, -1], [-1, -1, -1], [3, 1, 0]], dtype=np.int32)
    scores = np.array([[0.1, 0.1, 9], [1, 2, 3], [-1.5, 2, 0]], dtype=np.float32)
    write_run(path, ["q1", "q2", "p0"], PASSAGES, rows, scores, "bm25")
    assert path.read_text() == (
        "q1 Q0 p0 1 0.100000001 bm25\n"
        "q1 Q0 p2 2 0.100000001 bm25\n"
        "p0 Q0 p1 1 2 bm25\n"
        "p0 Q0 p0 2 0 bm25\n"
        "p0 Q0 p3 3 -1.5 bm25\n"
    )


@pytest.mark.parametrize("name", ["1", "007", "NA", "nan", '"quoted', "'", "#1", "1e5", "été", "True"])
def test_ids_stay_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / "test.trec"
    write_run(path, [name], [name], np.array([[0]], np.int32), np.array([[1]], np.float32), "s")
    read = read_run(path)
    assert read["query_id"].tolist() == [name] and read["passage_id"].tolist() == [name]


@pytest.mark.parametrize("name", ["two words", "", "tab\tbed", "line\nend", "no\u00a0break"])
def test_an_id_with_white_space_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="white space"):
        write_run(tmp_path / "r", [name], ["p"], np.array([[0]], np.int32), np.array([[1]], np.float32), "s")


def test_top_rows_gives_back_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "dev.trec"
    rows = np.array([[3, 1, 2], [0, -1, -1]], dtype=np.int32)
    scores = np.array([[3, 2, 1], [0.25, 0, 0]], dtype=np.float32)
    write_run(path, ["z", "a"], PASSAGES, rows, scores, "s")
    query_ids, found, found_scores = top_rows(path, pd.Index(PASSAGES), 2)
    assert query_ids == ["z", "a"]
    assert found.tolist() == [[3, 1], [0, -1]] and found.dtype == np.int32
    assert found_scores.tolist() == [[3, 2], [0.25, -np.inf]] and found_scores.dtype == np.float32


def test_top_rows_follows_ranks_not_the_order_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "foreign.trec"
    path.write_text("q Q0 p2 2 1.0 s\nr Q0 p0 1 5 s\nq Q0 p1 1 1.0 s\nq Q0 p0 3 0.5 s\n")
    query_ids, rows, _ = top_rows(path, PASSAGES, 2)
    assert query_ids == ["q", "r"] and rows.tolist() == [[1, 2], [0, -1]]


def test_an_empty_run_is_a_run(tmp_path: Path) -> None:
    path = tmp_path / "test.trec"
    write_run(path, ["q"], PASSAGES, np.full((1, 2), -1, np.int32), np.zeros((1, 2), np.float32), "s")
    assert read_run(path).empty
    query_ids, rows, scores = top_rows(path, PASSAGES, 5)
    assert query_ids == [] and rows.shape == scores.shape == (0, 5)


@pytest.mark.parametrize(
    "content", ["q Q0 p0 one 1.0 s\n", "q Q0 p0 1\n", "q Q0 p0 1 1.0 s extra\n", "q Q0 p0 1 high s\n", b"\xff\xfe q\n"]
)
def test_what_is_no_run_is_refused(tmp_path: Path, content: str | bytes) -> None:
    path = tmp_path / "test.trec"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match="TREC run file"):
        read_run(path)


def test_missing_files_and_unknown_passages_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_run(tmp_path / "none.trec")
    (tmp_path / "test.trec").write_text("q Q0 ghost 1 1.0 s\n")
    with pytest.raises(InputError, match="'ghost'"):
        top_rows(tmp_path / "test.trec", PASSAGES, 3)


def test_passages_that_were_not_rescored_follow_in_their_old_order() -> None:
    rows = np.array([[7, 3, 5, 9], [2, 4, -1, -1], [-1, -1, -1, -1]], dtype=np.int32)
    scores = reordered(rows, np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([-3.0, 4.0, 0.5], dtype=np.float32))
    assert order_by_score(scores, rows)[1].tolist() == [[3, 7, 5, 9], [2, 4, -1, -1], [-1, -1, -1, -1]]
    assert scores[0, :2].tolist() == [-3.0, 4.0] and scores[1, 0] == 0.5
