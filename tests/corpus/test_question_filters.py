"""The filters of made questions, each against a slow obvious version or cases chosen by hand."""

from __future__ import annotations

import random

import numpy as np
import pytest

from stillhouse.corpus.query_generation import (
    ALIKE,
    LOST,
    REASONS,
    UNCLEAR,
    UNLIKELY,
    MadeQuery,
    near_duplicates,
    points,
    reasons_to_drop,
    unlikely,
)
from stillhouse.corpus.words import terms_in


def made(*texts: str, rows: list[int] | None = None, likelihoods: list[float | None] | None = None) -> list[MadeQuery]:
    rows = rows or list(range(len(texts)))
    likelihoods = likelihoods or [None] * len(texts)
    return [
        MadeQuery(f"q{place:03}", text, row, f"p{row}", likely)
        for place, (text, row, likely) in enumerate(zip(texts, rows, likelihoods))
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is the purpose of this feature?", True),
        ("According to the passage, who won?", True),
        ("What did he do in 1912?", True),
        ("In what year was she born?", True),
        ("How many people have they hired?", True),
        ("Who invented the telegraph?", False),
        ("How do plants make their food?", False),
        ("What happens when a cell dies and how is it removed?", False),
        ("Is it safe to eat raw eggs?", False),
        ("Who led those who left Prague?", False),
        ("What did Tesla do after he left Prague?", False),
        ("Was hat er getan?", False),
    ],
)
def test_a_question_that_points_at_its_passage(text: str, expected: bool) -> None:
    assert points(text) == expected


def test_near_duplicates_are_those_of_every_pair_compared() -> None:
    chance = random.Random(5)
    vocabulary = ["who", "made", "type", "1", "2", "steel", "C"]
    texts = [" ".join(chance.choices(vocabulary, k=chance.randrange(1, 5))) for _ in range(300)]
    queries = made(*texts, rows=[chance.randrange(5) for _ in texts])
    expected = set()
    for one in queries:
        alike = [other for other in queries if set(other.text.lower().split()) == set(one.text.lower().split())]
        if len({other.row for other in alike}) > 1 or one.id != min(other.id for other in alike):
            expected.add(one.id)
    places = near_duplicates(queries, [terms_in(query.text) for query in queries])
    assert {queries[place].id for place in places} == expected and 0 < len(expected) < len(queries)


def test_the_least_likely_are_dropped_and_ties_go_by_id() -> None:
    queries = made(*"abcdef", likelihoods=[-1.0, None, -3.0, -2.0, -3.0, -0.5])
    assert unlikely(queries, 0.2) == {"q002"}
    assert unlikely(queries, 0.5) == {"q002", "q004"}
    assert unlikely(made(*"abc"), 0.5) == set(), "no likelihood is known"


def test_every_question_has_one_outcome_in_any_order() -> None:
    chance = random.Random(9)
    words = ["who", "found", "this", "coal", "tar", "1", "in", "Ohio", "he", "did"]
    texts = [" ".join(chance.choices(words, k=chance.randrange(1, 12))) for _ in range(200)]
    queries = made(*texts, rows=[chance.randrange(40) for _ in texts], likelihoods=[-chance.random() for _ in texts])
    lost = {query.id for query in queries if chance.random() < 0.1}

    def outcome(queries: list[MadeQuery]) -> dict[str, str]:
        reasons = reasons_to_drop(
            queries,
            [terms_in(query.text) for query in queries],
            np.array([query.id not in lost for query in queries]),
            0.1,
        )
        return dict(zip((query.id for query in queries), reasons, strict=True))

    these = made("Welche These vertritt Luther?")
    assert reasons_to_drop(these, [["these"]], np.array([True]), 0.0) == [UNCLEAR]
    assert reasons_to_drop(these, [["these"]], np.array([True]), 0.0, english=False) == [""]
    first = outcome(queries)
    assert outcome(chance.sample(queries, len(queries))) == first
    assert set(first.values()) == {"", *REASONS}
    least = unlikely(queries, 0.1)
    for query in queries:
        holds = {LOST: query.id in lost, UNCLEAR: points(query.text), UNLIKELY: query.id in least}
        expected = [reason for reason in REASONS if holds.get(reason)][:1] or ["", ALIKE]
        assert first[query.id] in expected
