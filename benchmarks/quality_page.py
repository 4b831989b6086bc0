"""The page of `quality.py`: of each corpus and number of labels every system, and what is compared with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality_cells import CELLS, LABELS, SETS, Size
from benchmarks.quality_run import MEASURE, PEER, TEACHER
from stillhouse.evaluation.samples import Samples
from stillhouse.evaluation.significance import Comparison, compare

Cells = Mapping[str, Mapping[str, Any]]
SECOND = "retriever_2"
FIRST = ("bm25", "start", "start + bm25", PEER, "retriever_1", SECOND, TEACHER)
"""The systems whose rows come first, in this order."""
IN_SHORT = {"bm25": "BM25", "start": "base model", "start + bm25": "base model with BM25", "winner": "winner"} | {
    PEER: f"{PEER}, equal time"
}
"""The columns of the table in short, which README and docs/evaluate.md show too."""
WITHOUT_LABELS = (
    f" Without labels, {PEER} trains on the questions that the run made. There is no retriever_1 and no teacher, "
    "because these recipes train once (distilled) and without one."
)
"""What the page says if it has a cell without labels."""
COMPARED = (
    ("winner", "start"),
    ("winner", "bm25"),
    ("winner", "start + bm25"),
    ("winner", PEER),
    (SECOND, "retriever_1"),
    (TEACHER, "retriever_1"),
    (TEACHER, SECOND),
    ("distilled", "retriever_1"),
)


def page_lines(found: Cells, size: Size, length: int) -> list[str]:
    command = "Command: `python -m benchmarks quality --folder build/quality`."
    lines = ["# Is it better?", "", f"{command} {' '.join(dict.fromkeys(cell['machine'] for cell in found.values()))}"]
    lines += ["", about(found, size, length), "", *in_short(found)]
    for corpus, title in SETS.items():
        for labels in LABELS:
            cells = cells_of(found, corpus, labels)
            lines += ["", *part(title, labels, cells)] if cells else []
    return lines


def in_short(found: Cells) -> list[str]:
    """A row for each corpus and number of labels; the best figures are bold."""
    columns = ["corpus, train questions", "seeds", *IN_SHORT.values()]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for corpus, title in SETS.items():
        for labels in LABELS:
            cells = cells_of(found, corpus, labels)
            if cells:
                train = cells[0]["queries"]["train"]
                means = [f"{mean_Q(cells, name).mean():.3f}" if name in systems(cells) else "–" for name in IN_SHORT]
                best = max(mean for mean in means if mean != "–")
                shown = " | ".join(f"**{mean}**" if mean == best else mean for mean in means)
                lines.append(f"| {title}, {f'{train:,}' if train else 'none'} | {len(cells)} | {shown} |")
    return lines


def cells_of(found: Cells, corpus: str, labels: str) -> list[Mapping[str, Any]]:
    """The cells of all seeds."""
    names = [cell.name for cell in CELLS if (cell.corpus, cell.labels) == (corpus, labels)]
    return [found[name] for name in names if name in found]


def about(found: Cells, size: Size, length: int) -> str:
    without = any(cell["queries"]["train"] == 0 for cell in found.values())
    return (
        f"{len(found)} of {len(CELLS)} cells are done. {MEASURE} on at most {size.test} test questions, the same in "
        f"all cells of a corpus. Passages are cut at {length} tokens on both sides. {PEER} trains for as much "
        "processor time as the run took here. Differences are means "
        "over questions, of each the mean over seeds, with 95 % bootstrap intervals over questions; p by randomisation "
        "over questions. The last two columns say how much a difference varies with the seed: its 95 % bootstrap "
        "interval over questions and seeds, both drawn again, and its value with each seed."
    ) + (WITHOUT_LABELS if without else "")


def part(title: str, labels: str, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """A corpus with some of its labels."""
    first = cells[0]
    said = "no labels" if labels == "none" else f"{first['queries']['train']:,} train questions"
    lines = [f"## {title}, {said}", ""]
    seeds = "1 seed" if len(cells) == 1 else f"{len(cells)} seeds"
    minutes = np.mean([cell["seconds"] for cell in cells]) / 60
    winners = ", ".join(sorted({cell["winner"] for cell in cells}))
    counts = f"{first['passages']:,} passages, {first['queries']['dev']:,} labelled dev questions, {seeds}"
    processors = ", ".join(dict.fromkeys(cell["machine"].removeprefix("Machine: ").partition(",")[0] for cell in cells))
    lines += [f"{counts}; {minutes:.0f} CPU-minutes per run ({processors}). Winner: {winners}.", ""]
    values = {name: mean_Q(cells, name) for name in systems(cells)}
    lines += [f"| system | {MEASURE} |", "|---|---|"]
    lines += [f"| {name} | {value.mean():.3f} |" for name, value in values.items()]
    lines += ["", "| compared | difference | interval | p | over questions and seeds | each seed |"]
    lines += ["|---|---|---|---|---|---|"]
    for system, baseline in COMPARED:
        if system in values and baseline in values:
            both = [cell for cell in cells if {system, baseline} <= set(cell["ranks"])]
            apart = difference(mean_Q(both, system), mean_Q(both, baseline))
            apart_SQ = np.array([np.subtract(cell["ranks"][system], cell["ranks"][baseline]) for cell in both])
            low, high = interval_over_both(apart_SQ)
            over_both = f"{low:+.3f} to {high:+.3f}" if len(both) > 1 else "–"
            lines.append(
                f"| {system} − {baseline} | {apart.difference:+.3f} | {apart.low:+.3f} to {apart.high:+.3f} "
                f"| {apart.randomisation_p:.4f} | {over_both} | "
                f"{', '.join(f'{mean:+.3f}' for mean in apart_SQ.mean(axis=1))} |"
            )
    return lines


def difference(system_Q: NDArray[np.float64], baseline_Q: NDArray[np.float64]) -> Comparison:
    """Of two systems on the same questions."""
    [found] = compare((system_Q - baseline_Q)[:, None], Samples(10_000))
    return found


def interval_over_both(apart_SQ: NDArray[np.float64], samples: int = 10_000) -> tuple[float, float]:
    """The 95 % bootstrap interval of the mean of differences [seeds, questions], with both drawn again."""
    rng = np.random.default_rng(42)
    seeds, questions = apart_SQ.shape
    drawn_BS = rng.multinomial(seeds, np.full(seeds, 1 / seeds), size=samples) / seeds
    drawn_BQ = rng.multinomial(questions, np.full(questions, 1 / questions), size=samples) / questions
    means_B = np.einsum("bs,sq,bq->b", drawn_BS, apart_SQ, drawn_BQ, optimize=True)
    low, high = np.quantile(means_B, [0.025, 0.975])
    return float(low), float(high)


def systems(cells: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(name for cell in cells for name in cell["ranks"]))
    known = [name for name in FIRST if name in names]
    return known + [name for name in names if name not in known and name != "winner"] + ["winner"] * ("winner" in names)


def mean_Q(cells: Sequence[Mapping[str, Any]], name: str) -> NDArray[np.float64]:
    """Of each question the mean over the seeds."""
    return np.mean([cell["ranks"][name] for cell in cells if name in cell["ranks"]], axis=0)
