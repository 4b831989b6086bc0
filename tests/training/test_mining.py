"""Mining compared with loops over queries: no right answers, no duplicates, best first, filtered and mixed by rule."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.rankings import first_kept
from stillhouse.training.mine_negatives import (
    MiningQueries,
    below,
    best_of,
    interleaved,
    limits,
    random_passages,
    ranked,
)

ROWS = st.lists(st.lists(st.integers(-1, 9), min_size=5, max_size=5), min_size=1, max_size=4)


def padded(lists: list[list[int]], width: int) -> list[list[int]]:
    return [row + [-1] * (width - len(row)) for row in lists]


@given(ROWS, st.integers(1, 7), st.integers(0, 2**20 - 1))
def test_first_kept_against_a_loop(rows: list[list[int]], depth: int, bits: int) -> None:
    keep = [[bool(bits >> (5 * i + j) & 1) for j in range(5)] for i in range(len(rows))]
    wanted = [[row for row, kept in zip(*pair) if kept][:depth] for pair in zip(rows, keep)]
    made = first_kept(np.array(rows, dtype=np.int32), np.array(keep), depth)
    assert made.dtype == np.int32 and made.tolist() == padded(wanted, depth)


def test_sources_are_spread_evenly_and_a_passage_stands_once() -> None:
    """Four of one source go to 1/8, 3/8, 5/8, 7/8 of the list, two of another to 1/4 and 3/4, a random one to 1/2."""
    first = np.array([[10, 11, 12, 13], [10, 11, -1, -1]], dtype=np.int32)
    other = np.array([[20, 21], [11, 20]], dtype=np.int32)
    chance = np.array([[30], [31]], dtype=np.int32)
    made = interleaved([first, other, chance])
    assert made.tolist() == [[10, 20, 11, 30, 12, 21, 13], [10, 11, 31, 20, -1, -1, -1]]
    assert interleaved([first, other[:, :0], chance[:, :0]]).tolist() == first.tolist()


def ranking(number: int, passages: int = 24) -> list[int]:
    return np.random.default_rng(number).permutation(passages).tolist()


def search_of(asked: list[int]):  # type: ignore[no-untyped-def]
    """Return a search that gives each query a seeded ranking of all 24 passages, with scores 24, 23, …"""

    def search(queries_B: np.ndarray, deep: int) -> tuple[np.ndarray, np.ndarray]:
        asked.append(deep)
        rows = np.array([ranking(number)[:deep] for number in queries_B], dtype=np.int32)
        scores = np.broadcast_to(24.0 - np.arange(rows.shape[1]), rows.shape).astype(np.float32)
        return rows, scores

    return search


def answering(among: str, number: int) -> range:
    """The passages that may be negatives of query `number`, and its own. Queries 0 to 11 are train, 12 to 17 dev."""
    if among == "corpus" or (among == "train_answers" and number >= 12):
        return range(24)
    return range(12) if number < 12 else range(12, 18)


@pytest.mark.parametrize("limit", [None, 20.0])
@pytest.mark.parametrize("among", ["corpus", "answers", "train_answers"])
@pytest.mark.parametrize("depth", [3, 30])
def test_ranked_negatives_against_a_loop_over_queries(
    small_corpus: Path, among: str, depth: int, limit: float | None
) -> None:
    """Passage n answers only query n. There are 12 train, 6 dev and 6 test queries."""
    asked: list[int] = []
    queries = MiningQueries(Corpus.open(small_corpus), among)
    limits_Q = None if limit is None else np.full(18, limit, dtype=np.float32)
    rows_QD, above = ranked(queries, search_of(asked), depth, limits_Q)
    assert rows_QD.shape == (18, depth) and max(asked) <= 24
    dropped = 0
    for number, row in enumerate(rows_QD):
        answers = answering(among, number)
        deep = asked[0] if among == "corpus" or number < 12 else asked[1]
        places = [place for place, row in enumerate(ranking(number)[:deep]) if row in answers and row != number]
        low = [place for place in places if limit is None or 24 - place <= limit]
        dropped += len(places) - len(low)
        wanted = [ranking(number)[place] for place in low][:depth]
        assert row.tolist() == wanted + [-1] * (depth - len(wanted))
        if depth == 3 and among == "corpus" and limit is None:
            assert len(wanted) == 3, "the search was deep enough"
    assert above == dropped


@pytest.mark.parametrize("among", ["corpus", "answers", "train_answers"])
def test_another_source_is_cleaned_and_filtered(small_corpus: Path, among: str) -> None:
    queries = MiningQueries(Corpus.open(small_corpus), among)
    other = np.array([[*ranking(number)[:10], -1] for number in range(18)], dtype=np.int32)
    rows_QD, dropped = best_of(queries, other, 4, [lambda query_P, row_P: (query_P + row_P) % 3 > 0])
    lost = 0
    for number, row in enumerate(rows_QD):
        answers = answering(among, number)
        may = [passage for passage in ranking(number)[:10] if passage in answers and passage != number]
        wanted = [passage for passage in may if (number + passage) % 3][:4]
        lost += sum((number + passage) % 3 == 0 for passage in may)
        assert row.tolist() == wanted + [-1] * (4 - len(wanted))
    assert dropped == lost > 0


@pytest.mark.parametrize(
    ("among", "count"), [(among, count) for among in ("corpus", "answers", "train_answers") for count in (3, 40)]
)
def test_random_passages_are_new_wrong_and_seeded(small_corpus: Path, among: str, count: int) -> None:
    queries = MiningQueries(Corpus.open(small_corpus), among)
    taken_QD = np.array([ranking(number)[:5] for number in range(18)], dtype=np.int32)
    rows_QC = random_passages(queries, taken_QD, count, seed=1)
    for number, row in enumerate(rows_QC):
        answers = set(answering(among, number))
        left = answers - {number} - set(taken_QD[number].tolist())
        drawn = [passage for passage in row.tolist() if passage >= 0]
        assert len(drawn) == min(count, len(left)) and len(set(drawn)) == len(drawn) and set(drawn) <= left
    assert np.array_equal(rows_QC, random_passages(queries, taken_QD, count, seed=1))
    assert not np.array_equal(rows_QC, random_passages(queries, taken_QD, count, seed=2))


def test_score_limits_by_hand() -> None:
    """Query 0 has positives of 0.9 and 0.5, and the lower one counts. Query 1 has one below 0."""
    scores = np.array([0.9, 0.5, -0.4], dtype=np.float32)
    assert limits(0.2, scores, np.array([0, 2, 3])) == pytest.approx([0.5 - 0.2 * 0.5, -0.4 - 0.2 * 0.4])
    accept = below(lambda query_P, row_P: row_P.astype(np.float32) / 10, np.array([0.4, 0.2], dtype=np.float32))
    assert accept(np.array([0, 0, 1, 1]), np.array([3, 5, 2, 3], dtype=np.int32)).tolist() == [True, False, True, False]


@pytest.mark.parametrize("among", ["corpus", "answers", "train_answers"])
def test_memory_does_not_depend_on_the_corpus(among: str, small_corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a billion passages, mining keeps neither all rows nor one bit per passage in memory."""
    monkeypatch.setattr(Corpus, "passage_count", 10**9)
    tracemalloc.start()
    try:
        asked = MiningQueries(Corpus.open(small_corpus), among)
        rows, _ = ranked(asked, search_of([]), 3, range_max=24)
        drawn = random_passages(asked, rows, 2, seed=0)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (rows >= 0).all() and (drawn >= 0).all()
    assert [bool((own > 24).all()) for own in drawn] == [len(answering(among, number)) == 24 for number in range(18)]
    assert peak < 30 * 2**20, peak
