"""One cell of `quality.py`: the run of Stillhouse, that of its peer at equal processor time, and their figures."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from benchmarks.quality_cells import LENGTH, Cell
from benchmarks.quality_peer import train_peer
from benchmarks.run_steps import step_once
from stillhouse.core.artifacts import write_whole
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.figures import measure_runs
from stillhouse.evaluation.measures import parse_measures
from stillhouse.pipeline.graph import graph_of

MEASURE = "RR@10"
PEER = "sentence-transformers"
TEACHER = "teacher"
TRAININGS = ("retriever_1", "retriever_2", "distilled", "reranker")
NAMES = {"bm25": "bm25", "zero_shot_run": "start", "zero_shot_hybrid_run": "start + bm25", "best_run": "winner"}
"""The systems whose names on the page are not those of their steps."""


def run_ours(cell: Cell, folder: Path) -> dict[str, Any]:
    """The figures of Stillhouse: `{"ranks": {system: reciprocal rank of each test question}, "seconds": …}`."""
    ours, seconds = folder / "ours", folder / "seconds"
    if not seconds.is_file():
        # A run that was stopped begins anew: sentence-transformers gets the time of the whole run.
        for made in ("ours", "work", "teacher", "peer", "peer_run"):
            shutil.rmtree(folder / made, ignore_errors=True)
        stillhouse("new", str(ours), "--source", str(folder / "source"))
        fit(ours / "params.yaml", cell)
        begun = sum(os.times()[:4])  # of the processor, child processes included
        stillhouse("run", "--params", "params.yaml", cwd=ours)
        write_whole(seconds, str(sum(os.times()[:4]) - begun))
    artifacts, given = ours / "artifacts", read_yaml(ours / "params.yaml")
    set_work(folder)
    runs = runs_of(artifacts)
    teacher = next((step.inputs for step in graph_of(given) if step.name == "teacher"), {})
    if "bm25" in teacher:
        runs[TEACHER] = teacher_run(artifacts, teacher, folder / "teacher")
    corpus = Corpus.open(artifacts / "ingest" / "corpus")
    winner = (artifacts / "best" / "retriever" / "manifest.json").read_text(encoding="utf-8")
    return {
        "passages": len(corpus.passages),
        "queries": {split: labelled(corpus, split) for split in ("train", "dev", "test")},
        "ranks": ranks_of(corpus, runs),
        "seconds": float(seconds.read_text()),
        "winner": yaml.safe_load(winner)["facts"]["winner"],
    }


def run_peer(cell: Cell, folder: Path, seconds: float) -> dict[str, list[float]]:
    """The ranks of sentence-transformers, trained for the processor time that the run took here."""
    artifacts = folder / "ours" / "artifacts"
    set_work(folder)
    corpus, start = artifacts / "ingest" / "corpus", artifacts / "fetch_model" / "encoder"
    model = train_peer(corpus, start, folder / "peer", seconds, cell.seed)
    return ranks_of(Corpus.open(corpus), {PEER: run_of(artifacts, model, folder / "peer_run")})


def labelled(corpus: Corpus, split: str) -> int:
    """How many questions of a split people wrote."""
    return int((corpus.queries_of(split)["origin"] == "source").sum())


def set_work(folder: Path) -> None:
    os.environ["STILLHOUSE_WORK"], os.environ["STILLHOUSE_QUIET"] = str(folder / "work"), "1"


def ranks_of(corpus: Corpus, runs: Mapping[str, Path]) -> dict[str, list[float]]:
    """Of each system the reciprocal rank of every labelled test question."""
    measured = measure_runs(corpus, runs, "test", parse_measures(MEASURE))
    test = next(part for part in measured if not part.synthetic)
    return {name: [round(value, 6) for value in test.values[name][MEASURE]] for name in runs}


def stillhouse(*words: str, cwd: Path | None = None) -> None:
    subprocess.run([sys.executable, "-m", "stillhouse.cli", *words], check=True, cwd=cwd)


def read_yaml(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def fit(path: Path, cell: Cell) -> None:
    """Sets what the cell asks for in the settings that `new` wrote: the seed of trainings, and shorter passages."""
    given = read_yaml(path)
    given["fetch_model"]["passage_length"] = min(LENGTH, given["fetch_model"]["passage_length"])
    for step in TRAININGS:
        if isinstance(given.get(step), dict):
            given[step] = given[step] | {"seed": cell.seed}
            for name in ("gradient_cache", "mini_batch_size"):  # for longer passages, on a machine with less memory
                given[step].pop(name, None)
    path.write_text(yaml.safe_dump(given, sort_keys=False), encoding="utf-8")


def runs_of(artifacts: Path) -> dict[str, Path]:
    """Every system that the run searched with, by its name on the page."""
    folders = (folder for folder in sorted(artifacts.iterdir()) if (folder / "run").is_dir())
    return {NAMES.get(folder.name, folder.name.removesuffix("_run")): folder / "run" for folder in folders}


def teacher_run(artifacts: Path, stage: Mapping[str, str], folder: Path) -> Path:
    """What teaches the distilled retriever, as a search of the whole corpus: BM25 and a retriever, weights from dev."""
    inputs = {"corpus": artifacts / "ingest" / "corpus"}
    inputs |= {name: artifacts / stage[name] for name in ("retriever", "index")}
    step_once("hybrid", inputs | {"bm25": artifacts / "bm25" / "bm25"}, {"hybrid": folder / "hybrid"})
    step_once("retrieve", inputs | {"hybrid": folder / "hybrid"}, {"run": folder / "run"})
    return folder / "run"


def run_of(artifacts: Path, model: Path, folder: Path) -> Path:
    """The run of a model of sentence-transformers, whose texts are cut as those of the start."""
    start = read_yaml(artifacts / "fetch_model" / "encoder" / "stillhouse.json")
    cut = {name: start[name] for name in ("query_length", "passage_length")}
    encoder, index = folder / "encoder", folder / "index"
    corpus = {"corpus": artifacts / "ingest" / "corpus"}
    step_once("fetch-model", {}, {"encoder": encoder}, model=str(model), **cut)
    step_once("index", corpus | {"retriever": encoder}, {"index": index})
    step_once("retrieve", corpus | {"retriever": encoder, "index": index}, {"run": folder / "run"})
    return folder / "run"
