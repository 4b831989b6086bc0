"""Counts, PMI and AMI, compared with a corpus worked out by hand and a slow version with dictionaries."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from slow_counts import Passages, flat, slow_counts

from stillhouse.pretraining.ngram_merge import Memory
from stillhouse.pretraining.ngrams import count_ngrams
from stillhouse.pretraining.pmi import pmi, score_tokens


def score(passages: Passages, longest: int, folder: Path, min_count: int = 1) -> np.ndarray:
    ids, offsets = flat(passages)
    memory = Memory(1 << 12)
    into = np.full(len(ids), np.nan, dtype=np.float32)
    score_tokens(count_ngrams(ids, offsets, longest, folder, memory), ids, offsets, into, memory, min_count)
    return into


# Three passages: "7 8 7 9", "7 8" and "9 9 9 9 9".
# 1-grams, 11 in all: 7 three times, 8 twice, 9 six times.
# 2-grams, 3 + 1 + 4 = 8 in all: (7 8) twice, (8 7) once, (7 9) once, (9 9) four times. (9 7), (8 9) would cross a
# border and do not exist.
# 3-grams, 2 + 0 + 3 = 5 in all: (7 8 7) once, (8 7 9) once, (9 9 9) three times.
# 4-grams, 1 + 0 + 2 = 3 in all: (7 8 7 9) once, (9 9 9 9) twice.
HAND = [[7, 8, 7, 9], [7, 8], [9, 9, 9, 9, 9]]
LOG = math.log
P7, P8, P9 = 3 / 11, 2 / 11, 6 / 11
# PMI = log (p(n-gram) / product of p(token)), each fraction simplified by hand:
PMI_78 = LOG(121 / 24)  # (2/8) / (3/11 * 2/11) = (1/4) * 121/6
PMI_87 = LOG(121 / 48)  # (1/8) * 121/6
PMI_79 = LOG(121 / 144)  # (1/8) / (3/11 * 6/11) = (1/8) * 121/18
PMI_99 = LOG(121 / 72)  # (4/8) / (6/11 * 6/11) = (1/2) * 121/36
PMI_787 = LOG(1331 / 90)  # (1/5) / (3/11 * 2/11 * 3/11) = (1/5) * 1331/18
PMI_879 = LOG(1331 / 180)  # (1/5) / (2/11 * 3/11 * 6/11) = (1/5) * 1331/36
PMI_999 = LOG(1331 / 360)  # (3/5) / (6/11)^3 = (3/5) * 1331/216
PMI_7879 = LOG(14641 / 324)  # (1/3) / (3/11 * 2/11 * 3/11 * 6/11) = (1/3) * 14641/108
PMI_9999 = LOG(14641 / 1944)  # (2/3) / (6/11)^4 = (2/3) * 14641/1296
# Eq. 8 with L = 4: a third of the 2-, 3- and 4-gram that end here, and a third of those that start here.
AMI = [
    (PMI_78 + PMI_787 + PMI_7879) / 3,
    PMI_78 / 3 + (PMI_87 + PMI_879) / 3,
    (PMI_87 + PMI_787) / 3 + PMI_79 / 3,
    (PMI_79 + PMI_879 + PMI_7879) / 3,
    PMI_78 / 3,
    PMI_78 / 3,
    (PMI_99 + PMI_999 + PMI_9999) / 3,
    PMI_99 / 3 + (PMI_99 + PMI_999 + PMI_9999) / 3,
    (PMI_99 + PMI_999) / 3 + (PMI_99 + PMI_999) / 3,
    (PMI_99 + PMI_999 + PMI_9999) / 3 + PMI_99 / 3,
    (PMI_99 + PMI_999 + PMI_9999) / 3,
]


def test_hand_worked_pmi(tmp_path: Path) -> None:
    expected = {2: [PMI_78, PMI_87, PMI_79], 3: [PMI_787, PMI_879], 4: [PMI_7879], 5: [PMI_9999, PMI_9999]}
    ids, offsets = flat(HAND)
    tables = count_ngrams(ids, offsets, 4, tmp_path)
    counts = tables.count_block(tables.block(ids, offsets))
    values = pmi(counts, [order.total for order in tables.orders])
    np.testing.assert_allclose(values[0], 0)
    for n in (2, 3, 4):
        # The first passage has n-grams at its first tokens alone, the second passage only (7 8).
        rest = 4 - len(expected[n])
        np.testing.assert_allclose(values[n - 1][:4], [*expected[n], *[0.0] * rest])
        np.testing.assert_allclose(values[n - 1][4:6], [PMI_78 if n == 2 else 0, 0])
    np.testing.assert_allclose(values[3][6:], [*expected[5], 0, 0, 0])


def test_hand_worked_ami(tmp_path: Path) -> None:
    ami = score(HAND, 4, tmp_path)
    assert ami.dtype == np.float32
    np.testing.assert_allclose(ami, AMI, rtol=1e-6)


def slow_ami(passages: Passages, longest: int, min_count: int) -> list[float]:
    counts = slow_counts(passages, longest)

    def log_p(gram: tuple[int, ...]) -> float:
        order = counts[len(gram) - 1]
        return math.log(order[gram] / sum(order.values()))

    def mutual(gram: tuple[int, ...]) -> float:
        if counts[len(gram) - 1][gram] < min_count:
            return 0.0
        return log_p(gram) - sum(log_p((token,)) for token in gram)

    values = []
    for passage in passages:
        for i in range(len(passage)):
            ends = [mutual(tuple(passage[i - j : i + 1])) for j in range(1, longest) if i - j >= 0]
            begins = [mutual(tuple(passage[i : i + j + 1])) for j in range(1, longest) if i + j < len(passage)]
            values.append((sum(ends) + sum(begins)) / (longest - 1))
    return values


CORPORA = st.lists(st.lists(st.integers(0, 4), max_size=9), min_size=1, max_size=8).filter(any)


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[], Path]:
    return lambda: tmp_path / "counts"


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(passages=CORPORA, longest=st.integers(2, 5), least=st.integers(1, 3))
def test_equals_dictionaries(passages: Passages, longest: int, least: int, folder: Callable[[], Path]) -> None:
    ami = score(passages, longest, folder(), least)
    np.testing.assert_allclose(ami, slow_ami(passages, longest, least), rtol=1e-5, atol=1e-5)
