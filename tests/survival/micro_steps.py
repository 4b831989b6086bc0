"""Steps of the micro recipe, each run in a process of its own that can be killed."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from chat_server import address_of_this_process
from kills import KILLS

from stillhouse.corpus.sources.options import sample_folder
from stillhouse.pipeline.graph import CORPUS, GATE, PRETRAINED, SIMLM_STEPS, GraphStep
from stillhouse.pipeline.recipes import configs, find_recipe, load_recipe
from stillhouse.pipeline.steps.registry import MODULES

FORKS = multiprocessing.get_context("forkserver")
"""Its children start with everything imported, so that a kill hits the work and not the imports."""
USED = """pytest pandas great_expectations transformers.models.bert.modeling_bert stillhouse.corpus.sources.detect
stillhouse.evaluation.figures stillhouse.evaluation.report.page stillhouse.models.source stillhouse.pretraining.run
stillhouse.search.hybrid stillhouse.training.group_training stillhouse.training.query_training"""
FORKS.set_forkserver_preload([*USED.split(), *(f"stillhouse.pipeline.steps.{module}" for module in MODULES)])

OLD_INDEX = {"old_index": "retriever_1_index/index"}
NEGATIVES = {"negatives": "mine_2/negatives"}
RUN_STEPS = (
    *SIMLM_STEPS,
    GraphStep("generated", "generate-queries", CORPUS | {"bm25": "bm25/bm25"}),
    GraphStep("count", "count", {"tokens": "tokenize/tokens"}),
    GraphStep("read_negatives", "read-negatives", CORPUS | GATE),
    GraphStep("query_tower", "train-query-encoder", CORPUS | OLD_INDEX | {"encoder": "retriever_1/retriever"}),
    GraphStep(
        "average",
        "average",
        CORPUS | {"negatives": "bm25/negatives", "start": PRETRAINED["encoder"], "trained": "retriever_1/retriever"},
    ),
    GraphStep("score_shard", "score-shard", CORPUS | NEGATIVES | {"reranker": "reranker/reranker"}),
    GraphStep("encode", "encode", CORPUS | GATE | {"retriever": "distilled/retriever"}),
    GraphStep(
        "hybrid",
        "hybrid",
        CORPUS | {"retriever": "distilled/retriever", "index": "distilled_index/index", "bm25": "bm25/bm25"},
    ),
    GraphStep(
        "label_queries",
        "label-queries",
        CORPUS | {"retriever": "distilled/retriever", "index": "distilled_index/index", "bm25": "bm25/bm25"},
    ),
    GraphStep(
        "compare_release",
        "compare-release",
        CORPUS | {"champion": "retriever_1_run/run", "challenger": "distilled_run/run"},
    ),
)
"""The steps of the graph, and one of each step that a full run does not need, with default settings."""

EXACT = {"precision": "fp32"}
TRAINED = {"max_steps": 4, "eval_steps": 2}
SMALL = KILLS == 1
"""Whether runs start from a small model. `make test-kill` uses the recipe's own, whose files take longer to write."""
START = "start_model"
"""The folder of the base model below the artifacts."""
TOO_FAST = {"reranker": {"learning_rate": 1.0 if SMALL else 1e-2}}
"""At this rate the held-out loss stops falling, so a killed run must remember and restore the best parameters."""


def settings_of(step: GraphStep, root: Path) -> Any:
    """Return a step's section of the recipe micro, in fp32 and with evaluations during training.

    Negatives from a file are those that BM25 found below `root`.
    """
    recipe = find_recipe("micro")
    config: Any = configs(load_recipe(recipe), str(recipe)).get(step.name) or step.spec.config()
    changes = EXACT | TRAINED | {"questions": str(sample_folder())}
    changes |= {"file": str(root / "bm25" / "run" / "dev.trec")} | TOO_FAST.get(step.name, {})
    if SMALL and step.name == "fetch_model":
        changes |= {"model": str(root / START)}
    if step.kind == "generate-queries":
        changes |= {"base_url": address_of_this_process(), "model": "stand-in"}
    return replace(config, **{name: value for name, value in changes.items() if hasattr(config, name)})


def run_step(name: str, root: Path, outputs: Path, work: Path) -> None:
    """Runs a step with the files below `root`; training keeps a checkpoint after every step."""
    os.environ["STILLHOUSE_WORK"], os.environ["STILLHOUSE_QUIET"] = str(work), "1"
    from stillhouse.pipeline.steps.execute import execute
    from stillhouse.training import loop

    loop.SECONDS_BETWEEN_CHECKPOINTS = 0.0
    [step] = [step for step in RUN_STEPS if step.name == name]
    execute(step.spec, settings_of(step, root), step.input_paths(root), step.output_paths(outputs))


def begin(step: GraphStep, root: Path, outputs: Path, work: Path) -> BaseProcess:
    process = FORKS.Process(target=run_step, args=(step.name, root, outputs, work))
    process.start()
    return process
