"""The page of `teachers.py`: every cross-encoder, alone and fused with the first stage, beside the first stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from quality_cells import SETS

from stillhouse.evaluation.significance import Comparison, compare

FIRST, CONTROL = "first stage", "control"
FIRST_LABEL = "BM25 + retriever 2"
CONTROL_LABEL = "the same, weights fitted on the best 20"
COLUMNS = (
    "cross-encoder",
    "alone, dev",
    "alone, test",
    "fused, dev",
    "fused, test",
    "difference",
    "interval",
    "p",
    "p, Holm",
)
ABOUT = """Each row trains a cross-encoder on the train questions of one run of quality.py and names what it changes. It
ranks the best 20 passages of the first stage, BM25 with retriever 2 and weights from dev: alone (a residual: added to
the score of BM25 and the start that it was trained on), and fused, as w1 · cross-encoder + w2 · retriever 2 + w3 ·
BM25. It reads pairs of at most 128 tokens in two epochs, at a learning rate of 1e-4, and each question with three
negatives. They are of those mined for retriever 2; where a cross-encoder is a residual or a cosine, they are among the
best 20 of BM25 with the start. Every second dev question chooses the step, of the start and three or four others: in
the first row by RR@10 of its own ranking of the 20, in the others by the likelihood of the right passages after fusion.
The weights make the right passages of all dev questions most likely; figures of dev are by cross-validation of the
weights in five folds, but not of the step, so dev flatters the cross-encoders a little. Test questions choose nothing.
Differences are those of the fused ranking to the first stage on test, with 95 % bootstrap intervals over questions and
p by randomisation; Holm's p corrects for the number of rows. Minutes are those of the processor."""


def page_lines(found: Mapping[str, Mapping[str, Any]], labels: Mapping[str, str]) -> list[str]:
    lines = ["# Is there a better teacher than BM25 with the retriever?", ""]
    lines += ["`python benchmarks/teachers.py --folder build/quality --work build/teachers`", "", ABOUT]
    for cell, rows in found.items():
        lines += ["", *part(cell, rows, [name for name in labels if name in rows], labels)]
    machines = {row["machine"] for rows in found.values() for row in rows.values() if "machine" in row}
    return [*lines, "", *sorted(machines)]


def part(cell: str, rows: Mapping[str, Any], names: list[str], labels: Mapping[str, str]) -> list[str]:
    """A cell's table; the variants together are one family of comparisons."""
    corpus, _, seed = cell.rsplit("-", 2)
    first, counts = rows[FIRST], rows[FIRST]["questions"]
    bm25, dense = first["weights"]
    lines = [f"## {SETS[corpus]}, {counts['train']} train questions, seed {seed}", ""]
    found, train = first["found"], {name: f"{first[f'train by {name}']:.3f}" for name in ("retriever_2", "start")}
    about = (
        f"{first['passages']:,} passages, {counts['dev']} dev and {counts['test']} test questions. The first stage is "
        f"{bm25:.2g} · BM25 + {dense:.3g} · retriever 2. A right passage is among its best 20 for {found['dev']:.0%} "
        f"of dev and {found['test']:.0%} of test. It ranks the train questions, which retriever 2 was trained on, with "
        f"RR@10 {train['retriever_2']}; BM25 with the start ranks them with {train['start']}, and the same 20 passages "
        f"of dev and test with {first['dev by start']:.3f} and {first['test by start']:.3f}."
    )
    lines += [about, ""]
    comparisons = differences(rows, names)
    lines += [f"| {' | '.join((*COLUMNS, 'minutes'))} |", "|---" * (len(COLUMNS) + 1) + "|"]
    lines += [f"| {FIRST_LABEL} | | | {first['dev']:.3f} | {np.mean(first['test']):.3f} | | | | | |"]
    [control] = differences(rows, [CONTROL])
    shown = f"{rows[CONTROL]['dev']:.3f} | {np.mean(rows[CONTROL]['test']):.3f} | {figures(control)} | |"
    lines += [f"| {CONTROL_LABEL} | | | {shown} |"]
    for name, comparison in zip(names, comparisons):
        row = rows[name]
        alone = f"{row['alone dev']:.3f} | {np.mean(row['alone']):.3f}"
        fused = f"{row['dev']:.3f} | {np.mean(row['test']):.3f}"
        holm = f"{comparison.randomisation_p_holm:.3f}"
        minutes = f"{row['seconds'] / 60:.0f}" if "seconds" in row else ""
        lines.append(f"| {labels[name]} | {alone} | {fused} | {figures(comparison)} | {holm} | {minutes} |")
    return lines


def differences(rows: Mapping[str, Any], names: list[str]) -> list[Comparison]:
    """The fused ranking of each of these rows less the first stage, on the same test questions."""
    if not names:
        return []
    columns = [np.subtract(rows[name]["test"], rows[FIRST]["test"]) for name in names]
    return compare(np.stack(columns, axis=1), bootstrap_samples=10_000, randomisation_samples=10_000, seed=42)


def figures(of: Comparison) -> str:
    return f"{of.difference:+.3f} | {of.low:+.3f} to {of.high:+.3f} | {of.randomisation_p:.3f}"
