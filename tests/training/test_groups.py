"""A group is a positive and distinct negatives, drawn in turn and reproducibly; wrong negatives are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from stillhouse.core.errors import InputError
from stillhouse.corpus.store import Corpus, write_tables
from stillhouse.training.batches import epoch_batches, times_seen
from stillhouse.training.groups import GroupSampler
from stillhouse.training.negatives import Negatives
from stillhouse.training.teacher import Teacher, TeacherScores


def make(folder: Path) -> Negatives:
    """Negatives p(n+1)..p(n+6) of query n; query q2 has two and query q3 none."""
    corpus = Corpus.open(folder)
    queries = pd.concat([corpus.queries_of("train"), corpus.queries_of("dev")], ignore_index=True)
    rows = (np.arange(len(queries))[:, None] + np.arange(1, 7)).astype(np.int32)
    rows[2, 2:] = -1
    rows[3] = -1
    return Negatives(queries[["query_id", "split"]], rows)


@pytest.fixture
def sampler(small_corpus: Path) -> GroupSampler:
    return GroupSampler(Corpus.open(small_corpus), make(small_corpus), "train", count=2, depth=5, seed=1)


def at(time: int, count: int = 12) -> np.ndarray:
    return np.full(count, time)


def test_a_group_is_a_positive_and_distinct_negatives_of_the_best(sampler: GroupSampler) -> None:
    groups = sampler.draw(np.arange(12), at(0))
    assert groups.rows_BK[:, 0].tolist() == list(range(12))
    for query in (0, 1, 4, 11):
        negatives = groups.rows_BK[query, 1:]
        assert len(set(negatives)) == 2 and set(negatives) <= set(range(query + 1, query + 6))
        assert (groups.columns_BK[query, 1:] + query + 1).tolist() == negatives.tolist()
    assert sorted(groups.rows_BK[2, 1:]) == [3, 4] and groups.candidate_BK[3].tolist() == [True] + [False] * 2
    assert groups.rows_BK[3].tolist() == [3, -1, -1]
    assert sampler.without_negatives == 1


def test_no_negative_comes_again_before_all_came_wherever_a_run_begins(sampler: GroupSampler) -> None:
    """With 12 queries, 2 of 5 negatives at a time and batches of 7, each query draws one full round after another."""
    batch, times = epoch_batches(12, 7, seed=9), times_seen(12, 7)
    drawn: dict[int, list[int]] = {query: [] for query in range(12)}
    for step in range(30):
        groups = sampler.draw(batch(step), times(step))
        for example, rows in zip(groups.examples_B, groups.rows_BK[:, 1:]):
            drawn[int(example)] += rows.tolist()
    for query in set(drawn) - {2, 3}:
        rounds = [drawn[query][start : start + 5] for start in range(0, 30, 5)]
        assert all(sorted(round) == list(range(query + 1, query + 6)) for round in rounds)
    resumed = epoch_batches(12, 7, seed=9)(17)
    again = sampler.draw(resumed, times_seen(12, 7)(17))
    assert np.array_equal(again.rows_BK, sampler.draw(batch(17), times(17)).rows_BK)


def test_positives_take_turns(tmp_path: Path) -> None:
    passages = {"passage_id": [f"p{n}" for n in range(6)], "title": [""] * 6, "section": [""] * 6}
    passages |= {"text": [f"text {n}" for n in range(6)], "article_id": [""] * 6, "position": [0] * 6}
    queries = {"query_id": ["one", "three"], "text": ["first?", "second?"], "split": ["train"] * 2}
    qrels = {"query_id": ["one", "three", "three", "three"], "passage_id": ["p0", "p1", "p2", "p3"]}
    write_tables(
        tmp_path,
        {"passages": passages, "queries": queries, "qrels": qrels | {"relevance": [1] * 4, "split": ["train"] * 4}},
    )
    negatives = Negatives(pd.DataFrame(queries)[["query_id", "split"]], np.array([[4], [5]], dtype=np.int32))
    sampler = GroupSampler(Corpus.open(tmp_path), negatives, "train", 1, 1, seed=0)
    drawn = [sampler.draw(np.array([1, 0]), np.array([time, time])) for time in range(6)]
    first = [int(groups.rows_BK[0, 0]) for groups in drawn]
    assert set(first[:3]) == {1, 2, 3} and first[3:] == first[:3]
    assert [int(groups.rows_BK[1, 0]) for groups in drawn] == [0] * 6
    assert all(sampler.positives[groups.positive_B].tolist() == groups.rows_BK[:, 0].tolist() for groups in drawn)


def teacher_of(negatives: Negatives, scored_QD: np.ndarray) -> Teacher:
    """A teacher that gives row + query / 100 where `scored_QD` is true. The positive of query n is passage n."""
    scores_QD = negatives.rows_QD + np.arange(len(scored_QD))[:, None] / 100
    ids = list(negatives.queries["query_id"])
    positives = pd.DataFrame({"query_id": ids, "row": np.arange(len(ids), dtype=np.int32), "score": 0.5})
    return Teacher(negatives.queries, np.where(scored_QD, scores_QD, np.nan).astype(np.float32), positives)


@pytest.mark.parametrize("split", ["train", "dev"])
def test_only_what_the_teacher_scored_is_drawn_with_its_own_score(small_corpus: Path, split: str) -> None:
    corpus, negatives = Corpus.open(small_corpus), make(small_corpus)
    scored_QD = (negatives.rows_QD >= 0) & (np.arange(6) % 2 == 0)
    teacher = teacher_of(negatives, scored_QD)
    sampler = GroupSampler(corpus, negatives, split, 1, 6, 3, teacher.negative_scores_QD)
    examples_B = np.arange(len(sampler))
    drawn = set()
    for time in range(3):
        groups = sampler.draw(examples_B, np.full(len(examples_B), time))
        scores_BK, known_BK = TeacherScores(teacher, sampler).of(groups)
        assert np.array_equal(known_BK, groups.candidate_BK)
        numbers_B = sampler.query_numbers_Q
        expected_B = groups.rows_BK[:, 1] + numbers_B / 100
        assert np.allclose(scores_BK[:, 1][known_BK[:, 1]], expected_B[known_BK[:, 1]])
        assert (scores_BK[:, 0] == 0.5).all()
        drawn |= {(number, column) for number, column in zip(numbers_B, groups.columns_BK[:, 1])}
    known = {(q, d) for q, d in zip(*np.nonzero(scored_QD)) if negatives.queries["split"][q] == split}
    assert drawn - {(3, 0)} == known
    assert sampler.unscored == int(((negatives.rows_QD >= 0) & ~scored_QD)[sampler.query_numbers_Q].sum())


def test_a_teacher_that_scored_fewer_than_are_drawn_is_refused(small_corpus: Path) -> None:
    corpus, negatives = Corpus.open(small_corpus), make(small_corpus)
    scored_QD = (negatives.rows_QD >= 0) & (np.arange(6) < 2)
    scores_QD = teacher_of(negatives, scored_QD).negative_scores_QD
    GroupSampler(corpus, negatives, "train", 2, 6, 3, scores_QD)
    with pytest.raises(
        InputError,
        match="scored 2 of the best 6 negatives of query 'q0', but 3 are drawn; raise negatives_scored or depth",
    ):
        GroupSampler(corpus, negatives, "train", 3, 6, 3, scores_QD)


def right_answer(rows: np.ndarray) -> None:
    rows[5, 3] = 5


def no_passage(rows: np.ndarray) -> None:
    rows[7, 0] = 24


@pytest.mark.parametrize(
    ("spoil", "said"), [(right_answer, "'p5' answers train query 'q5'"), (no_passage, "passages that the corpus lacks")]
)
def test_wrong_negatives_are_refused(small_corpus: Path, spoil: Callable[[np.ndarray], None], said: str) -> None:
    negatives = make(small_corpus)
    spoil(negatives.rows_QD)
    with pytest.raises(InputError, match=said):
        GroupSampler(Corpus.open(small_corpus), negatives, "train", 3, 5, 1)


def test_a_corpus_without_dev_queries_is_refused(small_corpus: Path) -> None:
    negatives = make(small_corpus)
    train = Negatives(negatives.queries.iloc[:12], negatives.rows_QD[:12])
    with pytest.raises(InputError, match="no dev queries"):
        GroupSampler(Corpus.open(small_corpus), train, "dev", 3, 5, 1)
