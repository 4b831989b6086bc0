"""How certain a search is of its result."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from stand_in_steps import QUERIES

from stillhouse.tuning.dev_figure import DevFigure
from stillhouse.tuning.search import Finished
from stillhouse.tuning.verdict import best_of_p, judge, sentence


def finished(number: int, ranks: list[float]) -> Finished:
    return Finished(number, {"a.b": number} if number else {}, DevFigure(QUERIES[: len(ranks)], np.array(ranks)))


def test_p_counts_that_the_best_of_several_was_chosen() -> None:
    """Compare with the exact p over all 2^8 sign flips."""
    rng = np.random.default_rng(3)
    differences_QC = rng.normal(0.1, 0.3, size=(8, 1)) + rng.normal(0, 0.3, size=(8, 3))
    highest = differences_QC.sum(axis=0).max()
    signs = np.array(list(product((1, -1), repeat=8)))
    exact = float(((signs @ differences_QC).max(axis=1) >= highest - 1e-9).mean())
    assert best_of_p(differences_QC, 40_000, 1) == pytest.approx(exact, abs=0.01)
    alone = differences_QC[:, [int(differences_QC.sum(axis=0).argmax())]]
    assert best_of_p(alone, 40_000, 1) < best_of_p(differences_QC, 40_000, 1)


def test_the_verdict_names_the_gain_and_the_number_of_trials() -> None:
    default = finished(0, [0.5, 0.5, 1.0, 0.2, 0.5, 1.0, 0.5, 0.25])
    better = finished(3, [1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 0.5])
    same = finished(2, [0.5, 0.5, 1.0, 0.2, 0.5, 1.0, 0.5, 0.2])
    verdict = judge(default, [same, better])
    assert verdict is not None and verdict.best is better
    assert verdict.difference == pytest.approx(better.figure.mean - default.figure.mean)
    assert verdict.low < verdict.difference < verdict.high and 0 < verdict.p < 0.1
    said = sentence(default, verdict, tried=7, given_up=5)
    for part in ("Trial 3", "7 trials besides the default, 5 of them stopped", f"{better.figure.mean:.4f}", "8 dev"):
        assert part in said


def test_the_verdict_says_when_nothing_beats_the_default() -> None:
    default = finished(0, [1.0, 0.5])
    said = sentence(default, judge(default, [finished(1, [0.5, 0.5])]), tried=1, given_up=0)
    assert said.startswith("Nothing better was found in 1 trial besides the default") and "leave params.yaml" in said
    assert "more --minutes" in sentence(default, judge(default, []), tried=2, given_up=2)
