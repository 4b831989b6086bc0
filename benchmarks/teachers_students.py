"""Does a student learn more from a teacher with a cross-encoder? Adds to teachers.measured.json and writes teachers.md.

    python benchmarks/teachers_students.py --folder build/quality --work build/teachers --cell scifact-all-2 --teacher …

It distils retriever 2 of a finished run once with each teacher and the settings of that run: BM25 with retriever 2, and
the same with the cross-encoder of a variant that teachers.py trained in `--work`. All weights are those of teachers.py.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from machine import machine
from notes import write_page
from numpy.typing import NDArray
from quality_run import read_yaml
from teachers import HERE, MEASURED, RETRIEVERS, VARIANTS, Place, mean, rounded
from teachers_page import CONTROL, STUDENTS, page_lines
from teachers_training import new_model, pair_scores

from stillhouse.artifacts import write_whole
from stillhouse.config import build
from stillhouse.context import Context
from stillhouse.evaluation.rankings import order_by_score
from stillhouse.retrieval.fine_tuning.retriever_training import train_retriever
from stillhouse.retrieval.fine_tuning.scored_pairs import ScoredPairs
from stillhouse.retrieval.fine_tuning.teacher import Teacher
from stillhouse.retrieval.mining.judged_queries import JudgedQueries
from stillhouse.retrieval.mining.mine_negatives import DenseRanking
from stillhouse.retrieval.models.encoder import BiEncoder, encode, inference
from stillhouse.retrieval.settings import InferenceConfig, ScoredPairsConfig
from stillhouse.steps.train_retriever import Config

START = "retriever 2"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="the folder of quality.py, with a folder per cell")
    parser.add_argument("--work", type=Path, required=True, help="the folder where teachers.py kept the cross-encoders")
    parser.add_argument("--cell", required=True)
    parser.add_argument("--teacher", required=True, choices=VARIANTS)
    arguments = parser.parse_args(argv)
    found = json.loads(MEASURED.read_text(encoding="utf-8"))
    rows = found[arguments.cell]
    place = Place(arguments.folder.resolve() / arguments.cell / "ours" / "artifacts", arguments.work / arguments.cell)
    start = place.artifacts / RETRIEVERS["retriever_2"][0]
    students = rows.setdefault(STUDENTS, {})
    students[START] = ranks(BiEncoder.load(start), place)
    settings = read_yaml(place.artifacts.parent / "params.yaml")["distilled"]
    pairs, scores_PF = scored(place, arguments.teacher, settings)
    for name, weights in (
        ("without", rows[CONTROL]["weights"]),
        (arguments.teacher, rows[arguments.teacher]["weights"]),
    ):
        teacher = teacher_of(place, pairs, scores_PF[:, : len(weights)] @ np.array(weights))
        student = BiEncoder.load(start)
        distil(student, place, teacher, settings)
        students[name] = ranks(student, place) | {"machine": machine("torch", "transformers")}
        write_whole(MEASURED, json.dumps(found, sort_keys=True) + "\n")
        print(arguments.cell, name, students[name]["dev"], np.mean(students[name]["test"]))
    write_page(HERE / "teachers.md", page_lines(found, {name: row.label for name, row in VARIANTS.items()}))
    return 0


def scored(place: Place, name: str, settings: dict[str, Any]) -> tuple[ScoredPairs, NDArray[np.float64]]:
    """The pairs that the distillation draws, and their scores by BM25, retriever 2 and the cross-encoder [P, 3]."""
    drawn = settings["negatives_per_query"] * settings["epochs"]
    config = ScoredPairsConfig(depth=settings["negatives_depth"], negatives_scored=drawn, seed=settings["seed"])
    pairs = ScoredPairs.of(config, place.corpus, place.mined())
    stage, texts = place.stages["retriever_2"], [str(text) for text in pairs.texts_Q]
    bm25_P = stage.hybrid.bm25.score_pairs(texts, pairs.query_P, pairs.rows_P)
    dense_P = DenseRanking(stage.vectors(texts), stage.hybrid.index).score(pairs.query_P, pairs.rows_P)
    variant = VARIANTS[name]
    model = new_model(place.artifacts / RETRIEVERS[variant.start][0], variant.pooling, variant.seed)
    model.load_state_dict(torch.load(place.work / f"{name}.pt", weights_only=True))
    asked, given = [texts[query] for query in pairs.query_P], [place.passages[row] for row in pairs.rows_P]
    with inference(model, place.context, InferenceConfig()) as device:
        cross_P = pair_scores(model, asked, given, device)
    return pairs, np.stack([bm25_P, dense_P, cross_P], axis=1).astype(np.float64)


def teacher_of(place: Place, pairs: ScoredPairs, scores_P: NDArray[np.float64]) -> Teacher:
    """These scores in the form that a distillation reads."""
    negative_QD = np.full(pairs.scored_QD.shape, np.nan, dtype=np.float32)
    negative_QD[pairs.scored_QD] = scores_P[pairs.positives :]
    own = slice(0, pairs.positives)
    ids = pairs.queries["query_id"].to_numpy()[pairs.query_P[own]]
    positives = pd.DataFrame({"query_id": ids, "row": pairs.rows_P[own], "score": scores_P[own].astype(np.float32)})
    return Teacher(place.mined().queries, negative_QD, positives)


def distil(student: BiEncoder, place: Place, teacher: Teacher, settings: dict[str, Any]) -> None:
    config = build(Config, settings, "train-retriever")
    work = place.work / "distilled"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    context = Context(work=work, quiet=True)
    drawn, depth = config.negatives_per_query, config.negatives_depth
    torch.manual_seed(config.seed)
    train_retriever(student, place.corpus, place.mined(), teacher, config, drawn, depth, context)


def ranks(retriever: BiEncoder, place: Place) -> dict[str, Any]:
    """RR@10 on dev, and of each test question, if a retriever alone ranks all passages."""

    def vectors(of: Any) -> NDArray[np.float32]:
        return encode(retriever, of, place.context, "texts", InferenceConfig())

    passages_ND = vectors(retriever.passages(place.passages))
    found: dict[str, Any] = {}
    for split in ("dev", "test"):
        judged = JudgedQueries(place.corpus, split)
        scores_QN = vectors(retriever.queries(judged.texts)) @ passages_ND.T
        rows_QN = np.broadcast_to(np.arange(len(passages_ND), dtype=np.int32), scores_QN.shape)
        ranks_Q = judged.reciprocal_ranks(order_by_score(scores_QN, rows_QN)[1][:, :100])
        found[split] = mean(ranks_Q) if split == "dev" else rounded(ranks_Q)
    return found


if __name__ == "__main__":
    sys.exit(main())
