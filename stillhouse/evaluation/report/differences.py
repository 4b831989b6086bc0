"""The report's part on two systems, query by query: how many got better or worse, and which changed most."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.figures import Measured
from stillhouse.evaluation.report.curves import difference_plot
from stillhouse.evaluation.report.examples import Example, examples_of_queries

BARS = 200
"""The most bars to draw; with more queries, a bar is the mean of neighbours."""


def differences_part(
    corpus: Corpus, measured: Measured, system: str, baseline: str, count: int, names: tuple[str, str]
) -> dict[str, Any]:
    """Counts, the plot, and at most `count` queries each that gained and lost most in the first measure.

    `names` are the names of the system and the baseline in the plot.
    """
    measure = measured.measures[0]
    judged = measured.judged(measure)
    query_ids = measured.values[system].index[judged]
    gain_Q = (measured.values[system][measure] - measured.values[baseline][measure]).to_numpy()[judged]
    gain_Q = np.where(np.abs(gain_Q) < 1e-12, 0.0, gain_Q)
    order_Q = np.argsort(-gain_Q, kind="stable")
    better = [str(query_ids[i]) for i in order_Q if gain_Q[i] > 0]
    worse = [str(query_ids[i]) for i in order_Q[::-1] if gain_Q[i] < 0]
    bars, a_bar = sorted_bars(gain_Q)
    return {
        "system": system,
        "baseline": baseline,
        "better": len(better),
        "worse": len(worse),
        "same": len(gain_Q) - len(better) - len(worse),
        "queries": len(gain_Q),
        "a_bar": a_bar,
        "plot": Markup(difference_plot(bars, measure, *names)),
        "gained": _shown(corpus, measured, better, (baseline, system), count),
        "lost": _shown(corpus, measured, worse, (baseline, system), count),
    }


def sorted_bars(gain_Q: np.ndarray) -> tuple[np.ndarray, int]:
    """The differences in descending order, and the most queries that a bar stands for."""
    falling = -np.sort(-gain_Q)
    parts = np.array_split(falling, min(BARS, len(falling)))
    return np.array([part.mean() for part in parts]), max(map(len, parts))


def _shown(
    corpus: Corpus, measured: Measured, query_ids: list[str], systems: tuple[str, str], count: int
) -> list[Example]:
    return examples_of_queries(corpus, measured, query_ids, count, systems)
