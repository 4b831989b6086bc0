"""What does a student learn from the best cross-encoder of teachers.py? Writes teachers_students.md beside this.

    python benchmarks/teachers_students.py --folder build/quality --work build/students [--cell scifact-all-2]

The cross-encoder of the row `cosine` is trained on the train questions of a finished run of quality.py. It is also
trained on each half of them, to score the questions of the other half (cross-fitting). Then retriever 2 trains on with
each teacher, and without one. Finished trainings are kept in `--work`, so a stopped run continues where it was.

Shape suffixes: Q questions, D depth of the negatives, P pairs, K candidates of a question, F kinds of scores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from kept import read_kept, write_kept
from machine import machine
from notes import write_page
from numpy.typing import NDArray
from quality_cells import SETS
from quality_run import read_yaml
from teachers import RETRIEVERS, VARIANTS, Place
from teachers_page import figures
from teachers_training import dev_scores, pair_scores

from stillhouse.artifacts import write_whole
from stillhouse.config import build
from stillhouse.context import Context
from stillhouse.evaluation.significance import compare
from stillhouse.retrieval.fine_tuning.retriever_training import fit_retriever
from stillhouse.retrieval.fine_tuning.scored_pairs import ScoredPairs
from stillhouse.retrieval.fine_tuning.teacher import Teacher
from stillhouse.retrieval.mining.mine_negatives import DenseRanking
from stillhouse.retrieval.mining.negatives import Negatives
from stillhouse.retrieval.mining.relevance import JudgedQueries
from stillhouse.retrieval.models.cross_encoder import CrossEncoder
from stillhouse.retrieval.models.encoder import BiEncoder, encode, inference
from stillhouse.retrieval.settings import InferenceConfig, RetrieverConfig, ScoredPairsConfig

HERE = Path(__file__).resolve().parent
MEASURED = HERE / "teachers_students.measured.json"
DEPTH = 20
"""Negatives that a teacher scores: this many of the best that were mined for retriever 2."""
EPOCHS = 2
SEEDS = (1, 2)
SEARCHED = 200
BEFORE, NONE = "retriever 2", "no teacher"
TEACHERS = {
    "fused": "BM25 + retriever 2",
    "cosine": "the same + cross-encoder",
    "cross-fitted": "the same + cross-encoder, cross-fitted",
}
ABOUT = """Retriever 2 of one run of quality.py trains on for two epochs, at most 50 steps, with three negatives a
question and the other settings of the distilled retriever. It does so without a teacher and with up to three: BM25 with
retriever 2; the same with the cross-encoder that is best in teachers.md (the cosine of both halves, no residual); and
the same with two such cross-encoders, each of which has seen one half of the train questions and scores the other half
(cross-fitted). A teacher scores the best 20 negatives that were mined for retriever 2; its weights make the right
passages of the dev questions most likely. Dev questions choose the step. RR@10 is that of the student alone.
Differences to retriever 2 on test are means over questions of the mean over seeds, with 95 % bootstrap intervals over
questions, p by randomisation and Holm's p for the rows of a table."""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="the folder of quality.py, with a folder per cell")
    parser.add_argument("--work", type=Path, required=True, help="where scores and trainings are kept")
    parser.add_argument("--cell", nargs="+", default=["scifact-all-2"])
    parser.add_argument("--teacher", nargs="+", choices=TEACHERS, default=list(TEACHERS), help="besides no teacher")
    arguments = parser.parse_args(argv)
    os.environ["STILLHOUSE_QUIET"] = "1"
    found = read_kept(MEASURED)
    for cell in arguments.cell:
        work = arguments.work.resolve() / cell
        found[cell] = Students(arguments.folder.resolve() / cell / "ours", work).measured(arguments.teacher)
        write_kept(MEASURED, found)
    write_page(HERE / "teachers_students.md", page_lines(found))
    return 0


class Students:
    """The teachers and students of one finished run."""

    def __init__(self, run: Path, work: Path) -> None:
        work.mkdir(parents=True, exist_ok=True)
        self.work = work
        self.place = Place(run / "artifacts", work)
        self.settings = read_yaml(run / "params.yaml")["distilled"]
        self.negatives = Negatives.read(run / "artifacts" / "mine_2" / "negatives")
        self.pairs = ScoredPairs.of(
            ScoredPairsConfig(depth=DEPTH, dev_negatives_scored=DEPTH), self.place.corpus, self.negatives
        )

    def measured(self, teachers: Sequence[str]) -> dict[str, Any]:
        """RR@10 of retriever 2 and of every student, by split and seed."""
        found: dict[str, Any] = {BEFORE: self.kept("before", lambda: self.ranks(self.retriever_2()))}
        found["questions"] = {split: len(JudgedQueries(self.place.corpus, split)) for split in ("train", "dev", "test")}
        for seed in SEEDS:
            for name in (NONE, *teachers):
                found.setdefault(name, []).append(self.kept(f"{name}-{seed}", partial(self.student, name, seed)))
        return found | {"machine": machine("torch", "transformers")}

    def kept(self, name: str, compute: Callable[[], Any]) -> Any:
        """The result of `compute`, from the file in the work folder that keeps it."""
        path = self.work / f"{name}.json"
        if not path.is_file():
            write_whole(path, json.dumps(compute()))
            print(name, flush=True)
        return json.loads(path.read_text(encoding="utf-8"))

    def retriever_2(self) -> BiEncoder:
        return BiEncoder.load(self.place.artifacts / RETRIEVERS["retriever_2"][0])

    def student(self, name: str, seed: int) -> dict[str, list[float]]:
        """Retriever 2 after training on with this teacher or none: RR@10 of each dev and test question."""
        teacher = None if name == NONE else self.teacher(name)
        changes = {"seed": seed, "epochs": EPOCHS, "negatives_depth": DEPTH}
        given = {name: value for name, value in (self.settings | changes).items() if name != "weak_teacher"}
        count, depth = given.pop("negatives_per_query"), given.pop("negatives_depth")
        config = build(RetrieverConfig, given, "student")
        work = self.work / "student"
        work.mkdir(exist_ok=True)
        for left in work.iterdir():
            left.unlink()  # a stopped training begins anew
        context, encoder = Context(work=work, quiet=True), self.retriever_2()
        torch.manual_seed(seed)
        fit_retriever(encoder, self.place.corpus, self.negatives, teacher, config, count, depth, context)
        return self.ranks(encoder)

    def ranks(self, encoder: BiEncoder) -> dict[str, list[float]]:
        """RR@10 of each dev and test question, by search of the whole corpus."""
        context, config = self.place.context, InferenceConfig()
        passages_ND = encode(encoder, encoder.passages(self.place.passages), context, "passages", config)
        found = {}
        for split in ("dev", "test"):
            judged = JudgedQueries(self.place.corpus, split)
            queries_QD = encode(encoder, encoder.queries(judged.texts), context, "queries", config)
            rows_QK = np.argsort(-(queries_QD @ passages_ND.T), axis=1, kind="stable")[:, :SEARCHED].astype(np.int32)
            found[split] = [round(float(rank), 4) for rank in judged.reciprocal_ranks(rows_QK)]
        return found

    def teacher(self, name: str) -> Teacher:
        """The fused scores of a teacher, with weights from the dev questions."""
        place, pairs = self.place, self.pairs
        stage, dev = place.stages["retriever_2"], place.lists["dev"]
        texts = list(pairs.texts_Q)
        bm25_P = stage.hybrid.bm25.score_pairs(texts, pairs.query_P, pairs.rows_P)
        dense_P = DenseRanking(stage.vectors(texts), stage.hybrid.index).score(pairs.query_P, pairs.rows_P)
        kinds = [bm25_P, dense_P]
        dev_QK = None
        if name != "fused":
            found = np.load(self.scores(name))
            kinds.append(found["pairs"])
            dev_QK = found["dev"]
        weights_F = dev.weights(dev.with_score(dev_QK))
        print(f"{name}: {weights_F}", flush=True)
        return self.made(np.stack(kinds, axis=1).astype(np.float64) @ weights_F)

    def made(self, scores_P: NDArray[np.float64]) -> Teacher:
        """The scores of all pairs as a teacher."""
        pairs, scores_P = self.pairs, scores_P.astype(np.float32)
        negative_scores_QD = np.full(pairs.scored_QD.shape, np.nan, dtype=np.float32)
        negative_scores_QD[pairs.scored_QD] = scores_P[pairs.positives :]
        ids = pairs.queries["query_id"].to_numpy()[pairs.query_P[: pairs.positives]]
        rows_P = pairs.rows_P[: pairs.positives]
        positives = pd.DataFrame({"query_id": ids, "row": rows_P, "score": scores_P[: pairs.positives]})
        return Teacher(self.negatives.queries, negative_scores_QD, positives)

    def scores(self, name: str) -> Path:
        """The file of the cross-encoder's scores: of all pairs, and of the dev shortlists."""
        path = self.work / f"scores-{name}.npz"
        if path.is_file():
            return path
        variant, dev = VARIANTS["cosine"], self.place.lists["dev"]
        nothing_added = np.zeros(dev.rows_QK.shape, dtype=np.float32)
        halves = (None,) if name == "cosine" else (0, 1)
        numbers_Q = np.cumsum((self.pairs.queries["split"] == "train").to_numpy()) - 1
        train_Q = (self.pairs.queries["split"] == "train").to_numpy()
        total_P, total_QK = np.zeros(len(self.pairs), np.float32), nothing_added.copy()
        for half in halves:
            model, _ = self.place.trained(variant, self.place.labelled(variant, half), nothing_added)
            share_Q = np.full(len(train_Q), 1 / len(halves), dtype=np.float32)
            if half is not None:
                share_Q[train_Q] = (
                    numbers_Q[train_Q] % 2 != half
                )  # a train question only by the one that has not seen it
            share_P = share_Q[self.pairs.query_P]
            total_P[share_P > 0] += share_P[share_P > 0] * self.scored(model, share_P > 0)
            with inference(model, self.place.context, InferenceConfig()) as device:
                total_QK += dev_scores(model, dev, self.place.passages, device) / len(halves)
        np.savez(path.with_suffix(".partial.npz"), pairs=total_P, dev=total_QK)
        path.with_suffix(".partial.npz").rename(path)
        return path

    def scored(self, model: CrossEncoder, chosen_P: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The cross-encoder's scores of the chosen pairs."""
        texts_Q, passages = self.pairs.texts_Q, self.place.passages
        questions = [texts_Q[query] for query in self.pairs.query_P[chosen_P]]
        with inference(model, self.place.context, InferenceConfig()) as device:
            return pair_scores(model, questions, [passages[row] for row in self.pairs.rows_P[chosen_P]], device)


def page_lines(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    lines = ["# What does a student learn from the best cross-encoder?", ""]
    lines += ["`python benchmarks/teachers_students.py --folder build/quality --work build/students`", "", ABOUT]
    for cell, rows in found.items():
        corpus, _, seed = cell.rsplit("-", 2)
        names, before = [name for name in (NONE, *TEACHERS) if name in rows], rows[BEFORE]
        of_name = {
            name: {s: np.mean([row[s] for row in rows[name]], axis=0) for s in ("dev", "test")} for name in names
        }
        differences = np.stack([of_name[name]["test"] - np.array(before["test"]) for name in names], axis=1)
        compared = compare(differences, bootstrap_samples=10_000, randomisation_samples=10_000, seed=42)
        lines += ["", f"## {SETS[corpus]}, {rows['questions']['train']} train questions, seed {seed}", ""]
        lines += ["| teacher | dev | test | by seed | difference | interval | p | p, Holm |", "|---" * 8 + "|"]
        lines += [f"| {BEFORE} | {np.mean(before['dev']):.3f} | {np.mean(before['test']):.3f} | | | | | |"]
        for name, of in zip(names, compared):
            means = f"{of_name[name]['dev'].mean():.3f} | {of_name[name]['test'].mean():.3f}"
            seeds = ", ".join(f"{np.mean(row['test']):.3f}" for row in rows[name])
            label = TEACHERS.get(name, name)
            lines.append(f"| {label} | {means} | {seeds} | {figures(of)} | {of.randomisation_p_holm:.3f} |")
    return [*lines, "", *sorted({rows["machine"] for rows in found.values()})]


if __name__ == "__main__":
    sys.exit(main())
