"""Which negatives teach retriever 2 most? Writes second_round.md beside this.

    python benchmarks/second_round.py --folder build/quality --work build/second_round [--cell scifact-all-2 …]

It reads retriever 1, its index and BM25's negatives from finished runs of quality.py in `--folder`. Each row mines anew
and trains retriever 1 further, as retriever 2 of the recipe `labelled`. It is measured on the test questions and on
"others": train questions of the same corpus that no row trains on. Choose rows by "others", or by "dev" where there are
none. What was measured is kept in second_round.measured.json, so a stopped run continues where it was.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from kept import read_kept, write_kept
from machine import machine
from negatives import questions, reciprocal_ranks
from notes import write_page
from quality_cells import CELLS, SETS, Cell, Qrels, read_qrels, rows
from run_steps import step_once

from stillhouse.context import Context
from stillhouse.corpus.store import Corpus, passage_texts
from stillhouse.evaluation.significance import compare
from stillhouse.retrieval.models.encoder import BiEncoder, encode
from stillhouse.retrieval.settings import InferenceConfig
from stillhouse.workflow.recipes import find_recipe, load_recipe

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "second_round.measured.json"
MIXED = {"others_depth": 20, "random_negatives": 5}
ROWS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "mixed": ("its best, BM25's best, its second", MIXED),
    "own": ("its best 3", {"others_depth": 0, "random_negatives": 0}),
}
"""What the three negatives are that a question draws from, and the settings of `mine`."""
BEFORE = "retriever 1"
SPLITS = ("dev", "others", "test")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="the folder of quality.py, with a folder per cell")
    parser.add_argument("--work", type=Path, required=True, help="where trainings are kept")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--cell", nargs="+", default=["scifact-all-2"], choices=[cell.name for cell in CELLS])
    parser.add_argument("--only", nargs="+", metavar="ROW", choices=ROWS, default=list(ROWS))
    arguments = parser.parse_args(argv)
    os.environ["STILLHOUSE_QUIET"] = "1"
    found = read_kept(MEASURED)
    for cell in (cell for cell in CELLS if cell.name in arguments.cell):
        run = arguments.folder.resolve() / cell.name
        own = found.setdefault(cell.name, {})
        for name in (BEFORE, *arguments.only):
            if name not in own:
                own[name] = measured(cell, run, arguments.work.resolve() / cell.name, arguments.data, name)
                write_kept(MEASURED, found)
                print(cell.name, name, {split: round(float(np.mean(own[name][split])), 4) for split in SPLITS})
    write_page(HERE / "second_round.md", page_lines(found))
    return 0


def measured(cell: Cell, run: Path, work: Path, data: Path, name: str) -> dict[str, Any]:
    """RR@10 of each question after a row's training, and the seconds of the processor that it took."""
    begun = time.process_time()
    model = run / "ours/artifacts/retriever_1/retriever" if name == BEFORE else trained(cell, run, work, name)
    seconds = time.process_time() - begun
    asked = questions(cell, run, data) | {"dev": read_qrels(run / "source/qrels/dev.tsv")}
    corpus, encoder = Corpus.open(run / "ours/artifacts/ingest/corpus"), BiEncoder.load(model)
    ranks = ranked(corpus, encoder, data / cell.corpus, asked, work)
    return ranks | {"seconds": round(seconds), "machine": machine("torch", "transformers")}


def trained(cell: Cell, run: Path, work: Path, name: str) -> Path:
    recipe, made = load_recipe(find_recipe("labelled")), run / "ours" / "artifacts"
    settings = {use: dict(recipe[use]) for use in ("mine_2", "retriever_2")}
    os.environ["STILLHOUSE_WORK"] = str(work / name / "work")
    inputs = {"corpus": made / "ingest/corpus", "retriever": made / "retriever_1/retriever"}
    mined = inputs | {"index": made / "retriever_1_index/index", "others": made / "bm25/negatives"}
    step_once("mine", mined, {"negatives": work / name / "mined"}, **settings["mine_2"] | dict(ROWS[name][1]))
    given = {"corpus": inputs["corpus"], "encoder": inputs["retriever"], "negatives": work / name / "mined"}
    outputs = {"retriever": work / name / "retriever", "curves": work / name / "curves"}
    step_once("train-retriever", given, outputs, **settings["retriever_2"] | {"seed": cell.seed})
    return outputs["retriever"]


def ranked(
    corpus: Corpus, encoder: BiEncoder, data: Path, asked: Mapping[str, Qrels], work: Path
) -> dict[str, list[float]]:
    """RR@10 of each question of each split, searching all passages."""
    work.mkdir(parents=True, exist_ok=True)
    context, config = Context(work=work, quiet=True), InferenceConfig()
    places = {str(name): row for row, name in enumerate(corpus.passages["passage_id"])}
    texts = {row["_id"]: row["text"] for row in rows(data / "queries.jsonl")}
    vectors_ND = encode(encoder, encoder.passages(list(passage_texts(corpus))), context, "passages", config)
    found = {}
    for split, judged in asked.items():
        right = [[places[passage] for passage in of if passage in places] for of in judged.values()]
        queries = encoder.queries([texts[name] for name in judged])
        vectors_QD = encode(encoder, queries, context, "queries", config) if judged else vectors_ND[:0]
        found[split] = [round(float(rank), 4) for rank in reciprocal_ranks(vectors_QD @ vectors_ND.T, right)]
    return found


def page_lines(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["# Which negatives teach retriever 2 most", ""]
    lines += ["`python benchmarks/second_round.py --folder build/quality --work build/second_round`", ""]
    lines += ["RR@10, searching all passages. “Others” are train questions that no row trains on. In brackets: the"]
    lines += ["difference from retriever 1, with its 95 % bootstrap interval over questions.", ""]
    for cell, measured_rows in found.items():
        corpus, labels, seed = cell.rsplit("-", 2)
        lines += [f"## {SETS[corpus]}, labels: {labels}, seed {seed}", ""]
        lines += ["| negatives | dev | others | test | processor seconds |", "|---|---|---|---|---|"]
        for name, label in {BEFORE: BEFORE, **{name: label for name, (label, _) in ROWS.items()}}.items():
            if name in measured_rows:
                row = measured_rows[name]
                cells = [cell_of(row[split], measured_rows[BEFORE][split], name != BEFORE) for split in SPLITS]
                lines.append(f"| {label} | {' | '.join(cells)} | {'' if name == BEFORE else row['seconds']} |")
        lines.append("")
    return [*lines, *sorted({row["machine"] for part in found.values() for row in part.values()})]


def cell_of(values: Sequence[float], before: Sequence[float], differs: bool) -> str:
    """The mean, and where it `differs` from the row before, by how much."""
    if not values:
        return ""
    mean = f"{np.mean(values):.3f}"
    if not differs:
        return mean
    differences_QC = (np.array(values) - np.array(before))[:, None]
    [found] = compare(differences_QC, bootstrap_samples=2000, randomisation_samples=100, seed=0)
    return f"{mean} ({found.difference:+.3f}, {found.low:.3f} to {found.high:.3f})"


if __name__ == "__main__":
    sys.exit(main())
