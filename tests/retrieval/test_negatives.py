"""Negatives: never a relevant passage, best first, and drawn the same way every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stillhouse.corpus.store import Corpus
from stillhouse.errors import InputError
from stillhouse.retrieval.groups import GroupSampler
from stillhouse.retrieval.negatives import Negatives, mine, without_positives


@given(st.data())
def test_negatives_are_the_ranking_without_the_relevant(data: st.DataObject) -> None:
    """Against a loop over queries."""
    queries, width, depth = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 8)), data.draw(st.integers(1, 10))
    rankings, relevant = [], []
    for _ in range(queries):
        found = data.draw(st.lists(st.integers(0, 12), max_size=width, unique=True))
        rankings.append(found + [-1] * (width - len(found)))
        relevant.append(sorted(data.draw(st.sets(st.integers(0, 12), max_size=4))))
    expected = []
    for ranking, gold in zip(rankings, relevant):
        kept = [row for row in ranking if row >= 0 and row not in gold][:depth]
        expected.append(kept + [-1] * (depth - len(kept)))
    offsets = np.cumsum([0, *map(len, relevant)])
    positives = np.array([row for gold in relevant for row in gold], dtype=np.int32)
    result = without_positives(np.array(rankings, dtype=np.int32), offsets, positives, depth)
    assert result.dtype == np.int32 and result.tolist() == expected


@pytest.mark.parametrize("among", ["corpus", "answers"])
@pytest.mark.parametrize("depth", [3, 30])
def test_mined_negatives_against_a_loop_over_queries(small_corpus: Path, among: str, depth: int) -> None:
    """Passage n answers query n alone; 12 train, 6 dev and 6 test queries. A seeded ranking of all passages each."""
    corpus = Corpus.open(small_corpus)
    asked: list[int] = []

    def ranking(text: str) -> list[int]:
        seed = sum(text.encode())
        return np.random.default_rng(seed).permutation(24).tolist()

    def search(texts: list[str], deep: int) -> np.ndarray:
        asked.append(deep)
        return np.array([ranking(text)[:deep] for text in texts], dtype=np.int32)

    made = mine(corpus, search, depth, among)
    texts = list(corpus.queries_of("train")["text"]) + list(corpus.queries_of("dev")["text"])
    assert len(made.rows_QD) == len(texts) == 18
    full = 0
    for number, (text, row) in enumerate(zip(texts, made.rows_QD)):
        answers = range(24) if among == "corpus" else range(12) if number < 12 else range(12, 18)
        deep = asked[0] if among == "corpus" or number < 12 else asked[1]
        wanted = [passage for passage in ranking(text)[:deep] if passage in answers and passage != number][:depth]
        assert row.tolist() == wanted + [-1] * (depth - len(wanted))
        full += len(wanted) == depth
    assert full > 9 if depth == 3 else full == 0
    assert max(asked) <= 24 or among == "corpus"


@pytest.fixture
def sampler(small_corpus: Path) -> GroupSampler:
    return GroupSampler(Corpus.open(small_corpus), make(small_corpus), "train", count=3, depth=5, seed=1)


def make(folder: Path) -> Negatives:
    """Negatives p(n+1)..p(n+6) of query n; query q2 has two and query q3 none."""
    corpus = Corpus.open(folder)
    queries = pd.concat([corpus.queries_of("train"), corpus.queries_of("dev")], ignore_index=True)
    rows = (np.arange(len(queries))[:, None] + np.arange(1, 7)).astype(np.int32)
    rows[2, 2:] = -1
    rows[3] = -1
    return Negatives(queries[["query_id", "split"]], rows)


def test_a_group_is_a_positive_and_distinct_negatives_of_the_best(sampler: GroupSampler) -> None:
    groups = sampler.draw(np.arange(12), stream=0)
    assert groups.rows_BK[:, 0].tolist() == list(range(12))
    for query in (0, 1, 4, 11):
        negatives = groups.rows_BK[query, 1:]
        assert len(set(negatives)) == 3 and set(negatives) <= set(range(query + 1, query + 6))
        assert (groups.columns_BK[query, 1:] + query + 1).tolist() == negatives.tolist()
    assert sorted(groups.rows_BK[2, 1:]) == [-1, 3, 4] and groups.candidate_BK[3].tolist() == [True] + [False] * 3
    assert sampler.without_negatives() == 1


def test_draws_depend_on_seed_and_stream_alone(sampler: GroupSampler) -> None:
    first, again = sampler.draw(np.arange(12), 5), sampler.draw(np.arange(12), 5)
    assert np.array_equal(first.rows_BK, again.rows_BK)
    draws = {sampler.draw(np.arange(12), stream).rows_BK.tobytes() for stream in range(10)}
    assert len(draws) == 10


def test_all_negatives_come_up(sampler: GroupSampler) -> None:
    seen = {row for stream in range(50) for row in sampler.draw(np.array([0]), stream).rows_BK[0, 1:]}
    assert seen == {1, 2, 3, 4, 5}


def test_relevance_is_that_of_the_qrels(sampler: GroupSampler) -> None:
    relevant = sampler.relevant(np.array([4, 7]), np.array([7, 4, 9], dtype=np.int32))
    assert relevant.tolist() == [[False, True, False], [True, False, False]]


def test_negatives_of_other_queries_are_refused(small_corpus: Path) -> None:
    negatives = make(small_corpus)
    negatives.queries.loc[0, "query_id"] = "elsewhere"
    with pytest.raises(InputError, match="do not cover"):
        GroupSampler(Corpus.open(small_corpus), negatives, "train", 3, 5, 1)


def test_a_corpus_without_dev_queries_is_refused(small_corpus: Path) -> None:
    negatives = make(small_corpus)
    train = Negatives(negatives.queries.iloc[:12], negatives.rows_QD[:12])
    with pytest.raises(InputError, match="no dev queries"):
        GroupSampler(Corpus.open(small_corpus), train, "dev", 3, 5, 1)


def test_negatives_read_back(small_corpus: Path, tmp_path: Path) -> None:
    negatives = make(small_corpus)
    negatives.write(tmp_path)
    read = Negatives.read(tmp_path)
    assert np.array_equal(read.rows_QD, negatives.rows_QD)
    assert read.queries.to_numpy().tolist() == negatives.queries.to_numpy().tolist()
