"""Counts, PMI and AMI against a corpus worked out by hand and against a slow version with dictionaries."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stillhouse.pretraining.pmi import average_mutual_information, count_ngrams, pmi


def flat(passages: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    ids = np.array([token for passage in passages for token in passage], dtype=np.int32)
    return ids, np.cumsum([0] + [len(passage) for passage in passages]).astype(np.int64)


# Two passages: "7 8 7 9" and "7 8". Unigrams: 7 three times, 8 twice, 9 once, 6 in all.
# Bigrams: (7 8) twice, (8 7) once, (7 9) once, 4 in all; (9 7) would cross the border and does not exist.
# Trigrams: (7 8 7) and (8 7 9), once each, 2 in all.
HAND = [[7, 8, 7, 9], [7, 8]]
P7, P8, P9 = 3 / 6, 2 / 6, 1 / 6
PMI_78 = math.log((2 / 4) / (P7 * P8))  # log 3
PMI_87 = math.log((1 / 4) / (P8 * P7))  # log 1.5
PMI_79 = math.log((1 / 4) / (P7 * P9))  # log 3
PMI_787 = math.log((1 / 2) / (P7 * P8 * P7))  # log 6
PMI_879 = math.log((1 / 2) / (P8 * P7 * P9))  # log 18
# Eq. 8 with L = 3: a half of (the bigram and the trigram that end here), and a half of (those that start here).
AMI_EQUATION = [
    (PMI_78 + PMI_787) / 2,
    PMI_78 / 2 + (PMI_87 + PMI_879) / 2,
    (PMI_87 + PMI_787) / 2 + PMI_79 / 2,
    (PMI_79 + PMI_879) / 2,
    PMI_78 / 2,
    PMI_78 / 2,
]
# Divided by the terms that exist: the second token's only n-gram that ends there is (7 8), and so on.
AMI_PRESENT = [
    (PMI_78 + PMI_787) / 2,
    PMI_78 + (PMI_87 + PMI_879) / 2,
    (PMI_87 + PMI_787) / 2 + PMI_79,
    (PMI_79 + PMI_879) / 2,
    PMI_78,
    PMI_78,
]


def test_hand_worked_counts() -> None:
    orders = count_ngrams(*flat(HAND), 3)
    counted = [dict(zip(map(tuple, order.grams.tolist()), order.counts.tolist())) for order in orders]
    assert counted == [
        {(7,): 3, (8,): 2, (9,): 1},
        {(7, 8): 2, (7, 9): 1, (8, 7): 1},
        {(7, 8, 7): 1, (8, 7, 9): 1},
    ]


def test_hand_worked_pmi() -> None:
    values = pmi(count_ngrams(*flat(HAND), 3))
    np.testing.assert_allclose(values[0], 0)
    np.testing.assert_allclose(values[1], [math.log(3), math.log(3), math.log(1.5)])
    np.testing.assert_allclose(values[2], [math.log(6), math.log(18)])


@pytest.mark.parametrize(("edges", "expected"), [("equation", AMI_EQUATION), ("present", AMI_PRESENT)])
def test_hand_worked_ami(edges: str, expected: list[float]) -> None:
    ami = average_mutual_information(count_ngrams(*flat(HAND), 3), edges)
    assert ami.dtype == np.float32
    np.testing.assert_allclose(ami, expected, rtol=1e-6)


def slow_counts(passages: list[list[int]], longest: int) -> list[Counter[tuple[int, ...]]]:
    return [
        Counter(tuple(passage[i : i + n]) for passage in passages for i in range(len(passage) - n + 1))
        for n in range(1, longest + 1)
    ]


def slow_ami(passages: list[list[int]], longest: int, edges: str) -> list[float]:
    counts = slow_counts(passages, longest)

    def mutual(gram: tuple[int, ...]) -> float:
        order = counts[len(gram) - 1]
        value = math.log(order[gram] / sum(order.values()))
        for token in gram:
            value -= math.log(counts[0][(token,)] / sum(counts[0].values()))
        return value

    values = []
    for passage in passages:
        for i in range(len(passage)):
            ends = [mutual(tuple(passage[i - j : i + 1])) for j in range(1, longest) if i - j >= 0]
            begins = [mutual(tuple(passage[i : i + j + 1])) for j in range(1, longest) if i + j < len(passage)]
            sides = [(sum(side), len(side) if edges == "present" else longest - 1) for side in (ends, begins)]
            values.append(sum(total / max(1, divisor) for total, divisor in sides))
    return values


CORPORA = st.lists(st.lists(st.integers(0, 4), max_size=9), min_size=1, max_size=8).filter(any)


@settings(deadline=None)
@given(passages=CORPORA, longest=st.integers(2, 4), edges=st.sampled_from(["equation", "present"]))
def test_equals_dictionaries(passages: list[list[int]], longest: int, edges: str) -> None:
    orders = count_ngrams(*flat(passages), longest)
    for order, expected in zip(orders, slow_counts(passages, longest)):
        assert dict(zip(map(tuple, order.grams.tolist()), order.counts.tolist())) == dict(expected)
        assert order.grams.tolist() == sorted(order.grams.tolist())
    np.testing.assert_allclose(
        average_mutual_information(orders, edges), slow_ami(passages, longest, edges), rtol=1e-5, atol=1e-5
    )
