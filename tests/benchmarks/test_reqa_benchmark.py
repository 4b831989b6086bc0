"""The ReQA benchmark: its recall equals that of other tools, ties count as their average, extrapolation is linear."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from ir_measures import R

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def reqa(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    import reqa_task

    return reqa_task


def test_recall_is_that_of_ir_measures(reqa: Any) -> None:
    rng = np.random.default_rng(0)
    rows_QK = np.stack([rng.permutation(300)[:200] for _ in range(30)]).astype(np.int32)
    rows_QK[3, 7:] = -1
    scores_QK = -np.arange(200, dtype=np.float32) * np.ones((30, 1), np.float32)
    counts = rng.integers(1, 4, size=30)
    query_P = np.repeat(np.arange(30), counts)
    row_P = np.concatenate([rng.choice(300, count, replace=False) for count in counts])
    qrels = [ir_measures.Qrel(str(q), str(p), 1) for q, p in zip(query_P, row_P)]
    run = [
        ir_measures.ScoredDoc(str(q), str(p), float(s))
        for q in range(30)
        for p, s in zip(rows_QK[q], scores_QK[q])
        if p >= 0
    ]
    values = {
        (m.query_id, m.measure): m.value for m in ir_measures.iter_calc([R @ k for k in reqa.CUTOFFS], qrels, run)
    }
    expected_QC = [[values[str(q), R @ k] for k in reqa.CUTOFFS] for q in range(30)]
    np.testing.assert_allclose(reqa.recall(rows_QK, scores_QK, query_P, row_P), expected_QC)


def test_ties_count_as_the_mean_over_all_their_orders(reqa: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reqa, "CUTOFFS", (1, 2, 3, 4))
    scores = np.array([[5, 4, 4, 4, 3]], dtype=np.float32)
    orders = [(0, *middle, 4) for middle in itertools.permutations((1, 2, 3))]
    expected = [np.mean([2 in order[:k] for order in orders]) for k in (1, 2, 3, 4)]
    found = reqa.recall(np.arange(5)[None], scores, np.array([0]), np.array([2]))
    np.testing.assert_allclose(found, [expected])


def test_extrapolation_follows_a_line_in_the_logarithm_and_needs_three_points(reqa: Any) -> None:
    import reqa_page

    rows = [
        {"candidates": size, "recall": {m: [0.9 - 0.05 * np.log(size / 1000), 0, 1] for m in reqa_page.MEASURES}}
        for size in (5000, 10000, 20000)
    ]
    expected = 100 * (0.9 - 0.05 * np.log(reqa_page.PAPER_SIZE / 1000))
    assert reqa_page.extrapolated(rows) == pytest.approx([expected] * 5)
    assert reqa_page.extrapolated(rows[:2]) == []
