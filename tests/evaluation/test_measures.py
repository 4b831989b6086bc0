from __future__ import annotations

import math
from typing import Any

import ir_measures
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhouse.core.errors import InputError
from stillhouse.evaluation.measures import parse_measures, per_query

DEFAULT = "RR@10 nDCG@10 R@50 R@100"
GAIN = [1 / math.log2(rank + 1) for rank in range(1, 12)]


def qrels(*lines: tuple[str, str, int]) -> pd.DataFrame:
    return pd.DataFrame(lines, columns=["query_id", "passage_id", "relevance"])


def run(**ranked: list[str]) -> pd.DataFrame:
    """Return a run in which all scores are equal, so only the ranks give the order."""
    lines = [(query, passage, rank + 1, 1.0) for query, ids in ranked.items() for rank, passage in enumerate(ids)]
    return pd.DataFrame(lines, columns=["query_id", "passage_id", "rank", "score"])


@pytest.mark.parametrize(
    ("ranked", "relevant", "measure", "expected"),
    [
        (["a", "b", "c"], ["a"], "RR@10", 1.0),
        (["a", "b", "c"], ["c"], "RR@10", 1 / 3),  # trec_eval would put c first: same scores, ids descending
        (["c", "b", "a"], ["a"], "RR@10", 1 / 3),
        ([f"x{i}" for i in range(10)] + ["a"], ["a"], "RR@10", 0.0),
        (["x", "a", "b"], ["a", "b"], "RR@10", 1 / 2),
        (["x", "a", "y", "b"], ["a", "b"], "nDCG@10", (GAIN[1] + GAIN[3]) / (GAIN[0] + GAIN[1])),
        (["x", "y", "z"], ["z", "missing"], "nDCG@10", GAIN[2] / (GAIN[0] + GAIN[1])),
        (["a", "x"], ["a", "missing", "gone"], "R@50", 1 / 3),
        ([f"x{i}" for i in range(50)] + ["a"], ["a"], "R@50", 0.0),
        ([f"x{i}" for i in range(50)] + ["a"], ["a"], "R@100", 1.0),
    ],
)
def test_hand_computed(ranked: list[str], relevant: list[str], measure: str, expected: float) -> None:
    judged = qrels(*(("q", passage, 1) for passage in relevant))
    value = per_query(judged, run(q=ranked), parse_measures(measure)).loc["q", measure]
    assert value == pytest.approx(expected, abs=1e-12)


def test_exactly_the_judged_queries_count() -> None:
    judged = qrels(("z", "a", 1), ("found", "a", 1), ("nothing", "a", 1), ("z", "b", 0))
    table = per_query(judged, run(found=["a"], unjudged=["a"], z=["b", "a"]), parse_measures(DEFAULT))
    assert table.index.tolist() == ["z", "found", "nothing"]
    assert table["RR@10"].tolist() == [0.5, 1.0, 0.0]
    assert table.loc["nothing"].tolist() == [0.0] * 4


GRADED = [("a", 3), ("b", 1), ("c", 2), ("d", 0)]
"""Grades from 0 to 3 as in TREC DL, whose binary measures count 2 and 3 as relevant."""


@pytest.mark.parametrize(
    ("measure", "expected"),
    [
        # Ranked: b (1), x (unjudged), c (2), d (0), a (3). trec_eval's gain is the grade itself.
        ("nDCG@10", (1 * GAIN[0] + 2 * GAIN[2] + 3 * GAIN[4]) / (3 * GAIN[0] + 2 * GAIN[1] + 1 * GAIN[2])),
        ("nDCG@3", (1 * GAIN[0] + 2 * GAIN[2]) / (3 * GAIN[0] + 2 * GAIN[1] + 1 * GAIN[2])),
        ("nDCG@1", 1 / 3),
        ("AP", (1 / 1 + 2 / 3 + 3 / 5) / 3),
        ("AP(rel=2)", (1 / 3 + 2 / 5) / 2),
        ("AP(rel=2)@3", (1 / 3) / 2),
        ("RR@10", 1.0),
        ("RR(rel=2)@10", 1 / 3),
        ("RR(rel=3)@4", 0.0),
        ("R@3", 2 / 3),
        ("R(rel=2)@3", 1 / 2),
        ("R(rel=2)@1000", 1.0),
        ("P(rel=2)@5", 2 / 5),
        ("Success(rel=2)@1", 0.0),
    ],
)
def test_grades_count(measure: str, expected: float) -> None:
    judged = qrels(*(("q", passage, grade) for passage, grade in GRADED))
    value = per_query(judged, run(q=["b", "x", "c", "d", "a"]), parse_measures(measure)).loc["q", measure]
    assert value == pytest.approx(expected, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_rankings_of_any_shape_equal_ir_measures(data: Any) -> None:
    """This covers empty and short rankings, unjudged queries, every grade, and blocks of one to four queries."""
    passages = [f"p{i}" for i in range(9)]
    judged_lines, lines = [], []
    for query in ("a", "b", "c", "d"):
        ranking = data.draw(st.permutations(passages))[: data.draw(st.integers(0, 9))]
        lines += [(query, passage, i + 1, float(-i)) for i, passage in enumerate(ranking)]
        grades = data.draw(st.dictionaries(st.sampled_from(passages), st.integers(0, 3), max_size=6))
        judged_lines += [(query, passage, grade) for passage, grade in grades.items()]
    judged = qrels(*judged_lines).sample(frac=1, random_state=data.draw(st.integers(0, 9)))
    table = pd.DataFrame(lines, columns=["query_id", "passage_id", "rank", "score"])
    measures = parse_measures("RR@3 nDCG@5 R@2 AP RR(rel=2)@10 AP(rel=2) P@4 Bpref Rprec nDCG(judged_only=True)@3")
    table["query_id"] = table["query_id"].astype(data.draw(st.sampled_from(["str", "category"])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stillhouse.evaluation.measures.MEASURED_AT_ONCE", data.draw(st.integers(1, 4)))
        found = per_query(judged, table, measures)
    assert found.index.tolist() == list(dict.fromkeys(judged["query_id"])) and found.notna().all().all()
    nested = {query: dict(zip(of["passage_id"], of["score"])) for query, of in table.groupby("query_id", observed=True)}
    expected = {
        (metric.query_id, str(metric.measure)): metric.value
        for metric in ir_measures.iter_calc(
            measures, {q: dict(zip(of["passage_id"], of["relevance"])) for q, of in judged.groupby("query_id")}, nested
        )
    }
    for query in found.index:
        for name in found.columns:
            assert found.loc[query, name] == pytest.approx(expected.get((query, name), 0.0), abs=1e-12), (query, name)


def test_a_passage_ranked_twice_is_refused() -> None:
    with pytest.raises(InputError, match="'a' twice for query 'q'"):
        per_query(qrels(("q", "a", 1)), run(q=["a", "b", "a"]), parse_measures("RR@10"))


@pytest.mark.parametrize("names", ["", "MRR10", "RR@10 nope@3", "RR@", "RR@x", "RR@10 RR@10", "alpha_nDCG@10"])
def test_what_cannot_be_measured_is_refused(names: str) -> None:
    with pytest.raises(InputError, match="measure"):
        parse_measures(names)
