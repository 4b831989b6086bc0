"""How many labelled dev questions does it take to fit the weights of BM25 and a retriever? Writes few_dev_questions.md.

    python benchmarks/few_dev_questions.py --folder build/fusion [--data ../shared/data]

The corpora, the retriever and the candidates are those of fusion.py, which keeps them in the same folder. Weights are
fitted on draws of a few of the dev questions; every fit ranks the same test questions.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from fusion import DEPTH, both, measure_sets, ranked
from machine import machine
from notes import write_page
from numpy.typing import NDArray
from quality_cells import Cell

from stillhouse.retrieval.mining.relevance import JudgedQueries
from stillhouse.retrieval.search.hybrid import Candidates, fit_fusion, unfitted

SIZES = (2, 5, 10, 20, 30, 50, 100)
DRAWS = 30
Found = Mapping[str, Mapping[int, NDArray[np.float64]]]
"""Of each corpus, by the number of dev questions, the mean RR@10 of every draw; 0: weights not fitted."""


def main(argv: list[str] | None = None) -> int:
    found: Found = measure_sets(argv, __doc__, measure)
    if found:
        write_page(Path(__file__).with_suffix(".md"), [*page_lines(found), "", machine("torch", "transformers")])
    return 0


def measure(cell: Cell, data: Path, folder: Path) -> dict[int, NDArray[np.float64]]:
    corpus, candidates, index = both(cell, data, folder)
    dev, test = JudgedQueries(corpus), JudgedQueries(corpus, "test")
    labelled, asked = candidates(dev.texts), candidates(test.texts)
    right_QK, judged_QK = dev.right(labelled.rows_QK), dev.judged(labelled.rows_QK)

    def figure(drawn_Q: NDArray[np.int64]) -> float:
        fusion = unfitted("auto", DEPTH, index)
        if len(drawn_Q):
            part = Candidates(*(values[drawn_Q] for values in vars(labelled).values()))
            fusion = fit_fusion(part, right_QK[drawn_Q], judged_QK[drawn_Q], DEPTH) or fusion
        return float(test.reciprocal_ranks(ranked(fusion, asked)).mean())

    random = np.random.default_rng(0)
    draws = {size: [random.permutation(len(dev))[:size] for _ in range(DRAWS)] for size in SIZES}
    fixed = {0: np.array([figure(np.empty(0, np.int64))])}
    return fixed | {size: np.array([figure(drawn_Q) for drawn_Q in own]) for size, own in draws.items()}


def page_lines(found: Found) -> list[str]:
    lines = ["# BM25 and a retriever together, with few labels", ""]
    lines += ["Command: `python benchmarks/few_dev_questions.py --folder build/fusion`.", ""]
    lines += [f"RR@10 on the test questions of [fusion.md](fusion.md): the mean of {DRAWS} draws of dev questions that"]
    lines += [
        "the weights are fitted on, and in brackets the worst of them. *None* is the weighted sum that is not fitted.",
        "",
    ]
    lines += [f"| dev questions | {' | '.join(found)} | mean |", "|---|" + "---|" * (len(found) + 1)]
    for size in next(iter(found.values())):
        values = [of[size] for of in found.values()]
        cells = [f"{own.mean():.3f}" + (f" ({own.min():.3f})" if size else "") for own in values]
        lines.append(f"| {size or 'none'} | {' | '.join(cells)} | {np.mean([own.mean() for own in values]):.3f} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
