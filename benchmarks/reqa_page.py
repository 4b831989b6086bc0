"""The results page of ReQA-SQuAD, from the rows of `reqa.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import notes
import numpy as np

MEASURES = ("R@1", "R@5", "R@10", "R@50", "R@100")
PAPER_SIZE = 101_951
"""Candidates of Chang et al. (2020) Table 2."""
PAPER: Mapping[str, Mapping[str, Sequence[float]]] = {
    "1/99": {"BM25": (41.86, 58.00, 63.64, 74.15, 77.91), "ICT+BFS+WLP": (37.43, 61.48, 70.18, 85.37, 89.85)},
    "5/95": {"BM25": (41.87, 57.98, 63.63, 74.17, 77.91), "ICT+BFS+WLP": (45.90, 70.89, 78.47, 90.49, 93.64)},
    "80/20": {"BM25": (41.77, 57.95, 63.55, 73.94, 77.49), "ICT+BFS+WLP": (58.35, 82.76, 88.44, 95.87, 97.49)},
}
"""Chang et al. (2020) Table 3, SQuAD, percent."""

Rows = Mapping[str, Any]


def write_page(page: Path, rows: Rows, about: Mapping[str, Any]) -> None:
    """Writes the page and appends what a person wrote in `<name>.notes.md`."""
    of = {group: [row for row in rows.values() if row["group"] == group] for group in ("bm25", "size", "dense")}
    counts = ", ".join(f"{number:,} ({split})" for split, number in about["queries"].items())
    said = (
        f"There are {about['candidates']:,} candidates from {about['articles']} articles. A candidate has "
        f"{about['words']:.0f} words: the sentence and then its passage, which contains it again. Test queries: "
        f"{counts}, with {about['query_words']:.1f} words on average. Chang et al. have {PAPER_SIZE:,} candidates, "
        "from all of SQuAD. An answer is right if it is the right sentence of the right passage. Recall is in percent, "
        "with 95 % bootstrap intervals over queries; a tie counts as the average over all its orders."
    )
    lines = [
        "# ReQA-SQuAD: a sentence and its passage, beside Chang et al. (2020) Table 3",
        "",
        "Command: `python benchmarks/reqa.py --folder build/reqa`; `--fine-tune 1/99` adds fine-tuned rows.",
        "",
        about["machine"],
        "",
        said,
        "",
        "## BM25, our defaults and Chang et al. (2020)",
        "",
        *head("split", "of whom", "candidates", "queries"),
    ]
    for row in of["bm25"]:
        if row["variant"] == "defaults":
            lines.append(line([row["split"], "here", f"{row['candidates']:,}", f"{row['queries']:,}"], row))
            paper = percent(PAPER[row["split"]]["BM25"], 2)
            lines.append(cells([row["split"], "Chang et al. (2020) Table 3", f"{PAPER_SIZE:,}", "", *paper]))
    lines += ["", "## What makes a difference to BM25 (1/99)", "", *head("variant")]
    for row in of["bm25"]:
        if row["split"] == "1/99":
            name = "defaults: k1 1.5, b 0.75, sentence and passage, English stemmer and stop words"
            lines.append(line([name if row["variant"] == "defaults" else row["variant"]], row))
    lines.append(cells(["Chang et al. (2020) Table 3", *percent(PAPER["1/99"]["BM25"], 2)]))
    lines += ["", "## The number of candidates (1/99)", ""]
    asked = max((row["queries"] for row in of["size"]), default=0)
    lines += [f"Every size has the same {asked:,} queries, a seeded sample. The candidates come from a quarter of the"]
    lines += ["articles (those of the queries and others), from half of them, from all, and from all with sentences of"]
    lines += ["`wiki-intro` as distractors.", "", *head("BM25", "candidates", "of them distractors")]
    for row in of["size"]:
        lines.append(line([row["variant"], f"{row['candidates']:,}", f"{row['distractors']:,}"], row))
    for variant in dict.fromkeys(row["variant"] for row in of["size"]):
        values = extrapolated([row for row in of["size"] if row["variant"] == variant and not row["distractors"]])
        if values:
            name = f"{variant}, extrapolated"
            lines.append(cells([name, f"{PAPER_SIZE:,}", "0", *percent(values)]))
    lines.append(cells(["Chang et al. (2020) Table 3", f"{PAPER_SIZE:,}", "0", *percent(PAPER["1/99"]["BM25"], 2)]))
    lines += [
        "",
        "*Extrapolated* is an estimate, not a measurement: a straight line in the logarithm of the number of",
    ]
    lines += ["candidates, fitted by least squares to the sizes without distractors.", ""]
    lines += ["## Dense retrieval", "", *head("split", "system", "candidates", "queries")]
    for row in of["dense"]:
        distractors = row["candidates"] - about["candidates"]
        system = f"all-MiniLM-L6-v2, {row['variant']}" + f", {distractors:,} distractors" * bool(distractors)
        lines.append(line([row["split"], system, f"{row['candidates']:,}", f"{row['queries']:,}"], row))
    for split, systems in PAPER.items():
        name = "Chang et al. (2020) Table 3, ICT+BFS+WLP, fine-tuned"
        lines.append(cells([split, name, f"{PAPER_SIZE:,}", "", *percent(systems["ICT+BFS+WLP"], 2)]))
    notes.write_page(page, lines)


def extrapolated(rows: Sequence[Mapping[str, Any]]) -> list[float]:
    """Percent at the paper's size; nothing with fewer than three points."""
    if len(rows) < 3:
        return []
    sizes = np.log([row["candidates"] for row in rows])
    figures = np.array([[100 * row["recall"][measure][0] for measure in MEASURES] for row in rows])
    slope, start = np.polyfit(sizes, figures, 1)
    return [float(value) for value in start + slope * np.log(PAPER_SIZE)]


def head(*columns: str) -> list[str]:
    names = [*columns, *MEASURES]
    return [cells(names), "|" + "---|" * len(names)]


def line(names: Sequence[str], row: Mapping[str, Any]) -> str:
    figures = [[100 * value for value in row["recall"][measure]] for measure in MEASURES]
    return cells([*names, *(f"{mean:.1f} ({low:.1f}–{high:.1f})" for mean, low, high in figures)])


def percent(values: Sequence[float], places: int = 1) -> list[str]:
    return [f"{value:.{places}f}" for value in values]


def cells(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"
