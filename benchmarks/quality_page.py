"""The page of `quality.py`: of each corpus every system, and what is compared with what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quality_cells import CELLS, HOURS, SETS, SIZE
from benchmarks.quality_run import BOTH, MEASURE, OTHER, PEER, TEACHER
from stillhouse.evaluation.samples import Samples
from stillhouse.evaluation.significance import Comparison, compare

Cells = Mapping[str, Mapping[str, Any]]
SECOND = "retriever_2"
FIRST = ("bm25", "start", "start + bm25", PEER, BOTH, "retriever_1", SECOND, TEACHER)
"""The systems whose rows come first, in this order."""
IN_SHORT = {"bm25": "BM25", "start": "base model", "start + bm25": "base model with BM25", "winner": "winner"} | {
    PEER: f"{PEER}, equal time",
    BOTH: "this with BM25",
}
"""The columns of the table in short, which README and docs/evaluate.md show too."""
COMPARED = (
    ("winner", "start"),
    ("winner", "bm25"),
    ("winner", "start + bm25"),
    ("winner", PEER),
    ("winner", BOTH),
    (SECOND, "retriever_1"),
    (TEACHER, "retriever_1"),
    (TEACHER, SECOND),
    ("distilled", "retriever_1"),
)


def page_lines(found: Cells) -> list[str]:
    command = "Command: `python -m benchmarks quality --folder build/quality`."
    lines = ["# Is it better?", "", f"{command} {' '.join(dict.fromkeys(cell['machine'] for cell in found.values()))}"]
    lines += ["", about(found), "", *in_short(found)]
    for corpus, title in SETS.items():
        cells = cells_of(found, corpus)
        lines += ["", *part(title, cells)] if cells else []
    return lines


def in_short(found: Cells) -> list[str]:
    """A row for each corpus; the best figures are bold."""
    columns = ["corpus, train questions", "seeds", *IN_SHORT.values()]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for corpus, title in SETS.items():
        cells = cells_of(found, corpus)
        if cells:
            means = [both_means(cells, name) if name in systems(cells) else "–" for name in IN_SHORT]
            best = max(mean for mean in means if mean != "–")
            shown = " | ".join(f"**{mean}**" if mean == best else mean for mean in means)
            lines.append(f"| {title}, {cells[0]['queries']['train']:,} | {len(cells)} | {shown} |")
    return lines


def cells_of(found: Cells, corpus: str) -> list[Mapping[str, Any]]:
    """The cells of all seeds."""
    return [found[cell.name] for cell in CELLS if cell.corpus == corpus and cell.name in found]


def about(found: Cells) -> str:
    return (
        f"{len(found)} of {len(CELLS)} cells are done, each `stillhouse new --hours {HOURS}` and `stillhouse run` on "
        f"one core. {MEASURE} / {OTHER} on at most {SIZE.test} test questions, the same in all cells of a corpus. "
        f"{PEER} trains on the same passages, split or cut as `new` chose, for as much processor time as the run took "
        "here. Each question's difference is averaged over seeds, then over questions, with 95 % bootstrap intervals "
        "over questions; p by randomisation over questions. The last two columns say how much a difference varies with "
        "the seed: its 95 % bootstrap interval over questions and seeds, both drawn again, and its value with each "
        "seed."
    )


def part(title: str, cells: Sequence[Mapping[str, Any]]) -> list[str]:
    """A corpus."""
    first = cells[0]
    lines = [f"## {title}, {first['queries']['train']:,} train questions", ""]
    seeds = "1 seed" if len(cells) == 1 else f"{len(cells)} seeds"
    minutes = np.mean([cell["seconds"] for cell in cells]) / 60
    winners = ", ".join(sorted({cell["winner"] for cell in cells}))
    texts = f"{first['passages']:,} passages of {first['articles']:,} articles"
    counts = f"{texts}, {first['queries']['dev']:,} labelled dev questions, {seeds}"
    processors = ", ".join(dict.fromkeys(cell["machine"].removeprefix("Machine: ").partition(",")[0] for cell in cells))
    lines += [f"{counts}; {minutes:.0f} CPU-minutes per run ({processors}). Winner: {winners}.", ""]
    lines += [f"| system | {MEASURE} / {OTHER} |", "|---|---|"]
    lines += [f"| {name} | {both_means(cells, name)} |" for name in systems(cells)]
    lines += ["", f"| compared | {OTHER} | {MEASURE} | p, {MEASURE} | over questions and seeds | each seed |"]
    lines += ["|---|---|---|---|---|---|"]
    for system, baseline in COMPARED:
        both = [cell for cell in cells if {system, baseline} <= set(cell["values"][MEASURE])]
        if both:
            other, apart = difference(both, system, baseline, OTHER), difference(both, system, baseline, MEASURE)
            ranks = [cell["values"][MEASURE] for cell in both]
            apart_SQ = np.array([np.subtract(of[system], of[baseline]) for of in ranks])
            low, high = interval_over_both(apart_SQ)
            over_both = f"[{low:+.3f}, {high:+.3f}]" if len(both) > 1 else "–"
            lines.append(
                f"| {system} − {baseline} | {interval(other)} | {interval(apart)} | {apart.randomisation_p:.4f} "
                f"| {over_both} | {', '.join(f'{mean:+.3f}' for mean in apart_SQ.mean(axis=1))} |"
            )
    return lines


def difference(cells: Sequence[Mapping[str, Any]], system: str, baseline: str, measure: str) -> Comparison:
    """Of two systems on the same questions."""
    apart_Q = mean_Q(cells, system, measure) - mean_Q(cells, baseline, measure)
    [found] = compare(apart_Q[:, None], Samples(10_000))
    return found


def interval(of: Comparison) -> str:
    return f"{of.difference:+.3f} [{of.low:+.3f}, {of.high:+.3f}]"


def both_means(cells: Sequence[Mapping[str, Any]], name: str) -> str:
    return " / ".join(f"{mean_Q(cells, name, measure).mean():.3f}" for measure in (MEASURE, OTHER))


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
    names = list(dict.fromkeys(name for cell in cells for name in cell["values"][MEASURE]))
    known = [name for name in FIRST if name in names]
    return known + [name for name in names if name not in known and name != "winner"] + ["winner"] * ("winner" in names)


def mean_Q(cells: Sequence[Mapping[str, Any]], name: str, measure: str) -> NDArray[np.float64]:
    """Of each question the mean over the seeds."""
    found = [cell["values"][measure] for cell in cells]
    return np.mean([values[name] for values in found if name in values], axis=0)
