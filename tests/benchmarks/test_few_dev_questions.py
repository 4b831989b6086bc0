"""The page of `few_dev_questions.py`: the mean and the worst of the draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


def test_the_page_shows_the_mean_and_the_worst_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: two draws of 0.5 and 0.7 have the mean 0.6; with the other corpus's 0.8 it is 0.7."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "benchmarks"))
    from few_dev_questions import page_lines

    lines = page_lines(
        {"one": {0: np.array([0.9]), 5: np.array([0.5, 0.7])}, "other": {0: np.array([0.7]), 5: np.array([0.8, 0.8])}}
    )
    assert "| none | 0.900 | 0.700 | 0.800 |" in lines
    assert "| 5 | 0.600 (0.500) | 0.800 (0.800) | 0.700 |" in lines
