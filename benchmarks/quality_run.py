"""A run of Stillhouse, that of its peer at equal processor time, and their figures: for `quality` and `no_labels`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from benchmarks.quality_peer import train_peer
from benchmarks.run_steps import step_once
from stillhouse.core.artifacts import write_whole
from stillhouse.corpus.store import Corpus
from stillhouse.evaluation.figures import measure_runs
from stillhouse.evaluation.measures import parse_measures
from stillhouse.pipeline.graph import graph_of

MEASURE, OTHER = "RR@10", "nDCG@10"
PEER = "sentence-transformers"
BOTH = f"{PEER} + bm25"
TEACHER = "teacher"
SEEDED = ("ingest", "question_writer", "generated", "retriever_1", "retriever_2", "distilled")
"""The sections of a recipe that get the seed."""
Values = dict[str, dict[str, list[float]]]
"""Measure -> system -> the value of each test question."""
NAMES = {"bm25": "bm25", "zero_shot_run": "start", "zero_shot_hybrid_run": "start + bm25", "best_run": "winner"}
"""The systems whose names on the page are not those of their steps."""


def run_ours(folder: Path, flags: Sequence[str], seed: int) -> dict[str, Any]:
    """Runs what `new`, with `flags`, makes of `folder / "source"`.

    Returns the figures of Stillhouse: `{"values": {measure: {system: that of each test question}}, "seconds": …}`."""
    ours, seconds = folder / "ours", folder / "seconds"
    if not seconds.is_file():
        # A run that was stopped begins anew: sentence-transformers gets the time of the whole run.
        for made in ("ours", "work", "teacher", "peer"):
            shutil.rmtree(folder / made, ignore_errors=True)
        stillhouse("new", str(ours), "--source", str(folder / "source"), *flags)
        set_seed(ours / "params.yaml", seed)
        begun = sum(os.times()[:4])  # of the processor, child processes included
        stillhouse("run", "--params", "params.yaml", cwd=ours)
        write_whole(seconds, str(sum(os.times()[:4]) - begun))
    artifacts, given = ours / "artifacts", read_yaml(ours / "params.yaml")
    set_work(folder)
    runs = runs_of(artifacts)
    teacher = next((step.inputs for step in graph_of(given) if step.name == "teacher"), {})
    if "bm25" in teacher:
        runs[TEACHER] = fused_run(
            artifacts, artifacts / teacher["retriever"], artifacts / teacher["index"], folder / "teacher"
        )
    corpus = Corpus.open(artifacts / "ingest" / "corpus")
    winner = (artifacts / "best" / "retriever" / "manifest.json").read_text(encoding="utf-8")
    return {
        "passages": len(corpus.passages),
        "articles": corpus.facts["articles"],
        "queries": {split: labelled(corpus, split) for split in ("train", "dev", "test")},
        "values": values_of(corpus, runs),
        "seconds": float(seconds.read_text()),
        "winner": yaml.safe_load(winner)["facts"]["winner"],
    }


def run_peer(folder: Path, seconds: float, seed: int) -> Values:
    """The figures of sentence-transformers, trained for `seconds` of the processor, alone and with BM25."""
    set_work(folder)
    peer, artifacts = folder / "peer", folder / "ours" / "artifacts"
    corpus = artifacts / "ingest" / "corpus"
    model = train_peer(corpus, artifacts / "fetch_model" / "encoder", peer, seconds, seed)
    return values_of(Corpus.open(corpus), runs_of_peer(artifacts, model, peer))


def labelled(corpus: Corpus, split: str) -> int:
    """How many questions of a split people wrote."""
    return int((corpus.queries_of(split)["origin"] == "source").sum())


def set_work(folder: Path) -> None:
    os.environ["STILLHOUSE_WORK"], os.environ["STILLHOUSE_QUIET"] = str(folder / "work"), "1"


def values_of(corpus: Corpus, runs: Mapping[str, Path]) -> Values:
    """Of each measure and system the value of every labelled test question."""
    measured = measure_runs(corpus, runs, "test", parse_measures([MEASURE, OTHER]))
    test = next(part for part in measured if not part.synthetic).values
    return {of: {name: [round(value, 6) for value in test[name][of]] for name in runs} for of in (MEASURE, OTHER)}


def stillhouse(*words: str, cwd: Path | None = None) -> None:
    subprocess.run([sys.executable, "-m", "stillhouse.cli", *words], check=True, cwd=cwd)


def read_yaml(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


def set_seed(path: Path, seed: int) -> None:
    """Sets the seed in the settings that `new` wrote. All test questions are measured, so that seeds have the same."""
    given = read_yaml(path)
    for step in SEEDED:
        if isinstance(given.get(step), dict):
            given[step] = given[step] | {"seed": seed}
    given["ingest"] |= {"max_test_queries": None}
    path.write_text(yaml.safe_dump(given, sort_keys=False), encoding="utf-8")


def runs_of(artifacts: Path) -> dict[str, Path]:
    """Every system that the run searched with, by its name on the page."""
    systems = (folder for folder in sorted(artifacts.iterdir()) if folder.name != "passages_bm25")
    folders = (folder for folder in systems if (folder / "run").is_dir())
    return {NAMES.get(folder.name, folder.name.removesuffix("_run")): folder / "run" for folder in folders}


def fused_run(artifacts: Path, retriever: Path, index: Path, folder: Path) -> Path:
    """A retriever and the run's BM25 together, with the weights that fit, as a search of the whole corpus."""
    inputs = {"corpus": artifacts / "ingest" / "corpus", "retriever": retriever, "index": index}
    step_once("hybrid", inputs | {"bm25": artifacts / "bm25" / "bm25"}, {"hybrid": folder / "hybrid"})
    step_once("retrieve", inputs | {"hybrid": folder / "hybrid"}, {"run": folder / "run"})
    return folder / "run"


def runs_of_peer(artifacts: Path, model: Path, folder: Path) -> dict[str, Path]:
    """The runs of a model of sentence-transformers, whose texts are cut as those of the base model."""
    given = read_yaml(artifacts / "fetch_model" / "encoder" / "stillhouse.json")
    cut = {name: given[name] for name in ("query_length", "passage_length")}
    encoder, index = folder / "encoder", folder / "index"
    step_once("fetch-model", {}, {"encoder": encoder}, model=str(model), **cut)
    inputs = {"corpus": artifacts / "ingest" / "corpus", "retriever": encoder}
    step_once("index", inputs, {"index": index})
    step_once("retrieve", inputs | {"index": index}, {"run": folder / "run"})
    return {PEER: folder / "run", BOTH: fused_run(artifacts, encoder, index, folder / "both")}
