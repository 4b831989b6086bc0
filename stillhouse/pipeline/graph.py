"""The graphs: what each kind of run does, as tables of stages, each with its steps and where their inputs come from.

`dvc.yaml`, `stillhouse run` and the Kubeflow pipelines are all made from these tables, so they cannot drift apart. A
recipe names its graph (`graph: labelled`) and gives settings. The name of a step in a graph is its section in
`params.yaml`; its outputs lie in `artifacts/<name>/<output>`. A recipe's section `stages` may change inputs and add
steps (`graph_of`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from stillhouse.core.config import GRAPH as GRAPH
from stillhouse.core.config import refuse_unknown
from stillhouse.pipeline.graph_steps import ARTIFACTS as ARTIFACTS
from stillhouse.pipeline.graph_steps import GraphStep as GraphStep
from stillhouse.pipeline.graph_steps import dense, staged, step_of
from stillhouse.pipeline.graph_steps import needed as needed
from stillhouse.pipeline.stages import STAGES as STAGES
from stillhouse.pipeline.stages import changed

CORPUS = {"corpus": "ingest/corpus"}
GATE = {"validation": "validate/validation"}
PRETRAINING = "pretraining"
PRETRAINED = {"encoder": f"{PRETRAINING}/encoder"}
START = "fetch_model/encoder"
"""The base model."""
HYBRID_RUN = "zero_shot_hybrid_run"
TRAININGS = ("pretrain", "train-retriever", "train-reranker", "train-projection")
"""The steps with loss curves."""
LEXICAL = GraphStep("bm25", "bm25", CORPUS | GATE)
BM25 = {"bm25": "bm25/bm25"}
TOKENIZED = {"tokens": "tokenize/tokens"}
MINED_2 = CORPUS | {"negatives": "mine_2/negatives"}
RERANKER = {"reranker": "reranker/reranker"}


def _searched(retriever: str, system: str = "") -> dict[str, str]:
    """A retriever (`step/output`) with the index of its system."""
    return {"retriever": retriever, "index": f"{system or step_of(retriever)}_index/index"}


def _mine(name: str, retriever: str, system: str = "") -> GraphStep:
    """Hard negatives of a retriever."""
    return GraphStep(name, "mine", CORPUS | _searched(retriever, system) | {"others": "bm25/negatives"})


def _train(name: str, negatives: str, encoder: str, teacher: str = "") -> tuple[GraphStep, ...]:
    """A retriever with its index and its run."""
    inputs = CORPUS | {"negatives": f"{negatives}/negatives", "encoder": encoder}
    own = GraphStep(name, "train-retriever", inputs | ({"teacher": f"{teacher}/teacher"} if teacher else {}))
    return (own, *dense(name, f"{name}/retriever"))


def _fused_teacher() -> GraphStep:
    """Retriever 2 together with BM25."""
    return GraphStep("teacher", "score-pairs", MINED_2 | _searched("retriever_2/retriever") | BM25)


def _projected() -> tuple[GraphStep, ...]:
    """Retriever 2 with a linear layer that learned from all passages at once."""
    inputs = CORPUS | {"encoder": "retriever_2/retriever", "old_index": "retriever_2_index/index"}
    return (GraphStep("projected", "train-projection", inputs), *dense("projected", "projected/retriever"))


def _averaged(start: str) -> tuple[GraphStep, ...]:
    """The average of the distilled retriever's weights with those of an earlier model."""
    inputs = CORPUS | {"start": start, "trained": "distilled/retriever", "negatives": "mine_2/negatives"}
    return (GraphStep("averaged", "average", inputs), *dense("averaged", "averaged/retriever"))


def _base_with_bm25() -> tuple[GraphStep, GraphStep]:
    """The base model fused with BM25: the baseline to beat."""
    searched = CORPUS | _searched(START, "zero_shot")
    return (
        GraphStep("zero_shot_hybrid", "hybrid", searched | BM25),
        GraphStep(HYBRID_RUN, "retrieve", searched | {"hybrid": "zero_shot_hybrid/hybrid"}),
    )


def _graph(stages: Mapping[str, tuple[GraphStep, ...]], apart: str = "") -> dict[str, tuple[GraphStep, ...]]:
    """The stages with a last one: the choice among the base model and all retrievers that have an index, but the one
    `apart`, and the evaluation of all runs, with the loss curves of all trainings."""
    steps = staged(stages)
    retrievers = {step.name.removesuffix("_index"): step.inputs["retriever"] for step in steps if step.kind == "index"}
    retrievers.pop(apart, None)
    of_best = {f"candidates/{system}": retriever for system, retriever in retrievers.items()}
    of_best |= {f"indexes/{system}": f"{system}_index/index" for system in retrievers}
    found = {port: f"best/{port}" for port in ("retriever", "index", "hybrid")}
    runs = [step.name for step in steps if step.kind in ("bm25", "retrieve", "rerank")]
    runs.sort(key=lambda name: name == HYBRID_RUN)  # a baseline, of which no training is the next stage
    measured = {f"run/{run.removesuffix('_run')}": f"{run}/run" for run in (*runs, "best_run")}
    curves = {f"curves/{step.name}": f"{step.name}/curves" for step in steps if step.kind in TRAININGS}
    last = (
        GraphStep("best", "select-best", CORPUS | BM25 | of_best),
        GraphStep("best_run", "retrieve", CORPUS | found),
        GraphStep("evaluate", "evaluate", CORPUS | measured | curves),
    )
    return {**stages, "evaluation": last}


FETCH, INGEST = GraphStep("fetch_model", "fetch-model"), GraphStep("ingest", "ingest")
CHECKED = GraphStep("validate", "validate", CORPUS | {"encoder": START})
"""With the base model, whose tokenizer says which passages are truncated."""
TOKENS = GraphStep("tokenize", "tokenize", CORPUS | GATE | {"tokenizer": START})
LM_HEAD = GraphStep("lm_head", "pretrain", TOKENIZED | {"init": START})
WITH_HEAD = {"init": "lm_head/encoder"}

SIMLM = _graph(
    {
        "corpus": (
            FETCH,
            GraphStep("fetch_generator", "fetch-model"),
            GraphStep("fetch_reranker", "fetch-model"),
            INGEST,
            GraphStep("validate", "validate", CORPUS),
            TOKENS,
            GraphStep("importance", "importance", TOKENIZED),
            LEXICAL,
        ),
        PRETRAINING: (
            LM_HEAD,
            GraphStep(
                PRETRAINING,
                "pretrain",
                TOKENIZED
                | {"importance": "importance/importance"}
                | WITH_HEAD
                | {"generator": "fetch_generator/encoder"},
            ),
        ),
        "retriever_1": (
            *dense("zero_shot", START),
            *_train("retriever_1_unpretrained", "bm25", START),
            *_train("retriever_1", "bm25", PRETRAINED["encoder"]),
        ),
        "retriever_2": (
            _mine("mine_1", "retriever_1/retriever"),
            *_train("retriever_2", "mine_1", PRETRAINED["encoder"]),
        ),
        "distillation": (
            _mine("mine_2", "retriever_2/retriever"),
            GraphStep("reranker", "train-reranker", MINED_2 | {"init": "fetch_reranker/encoder", "encoder": START}),
            GraphStep("teacher", "score-pairs", MINED_2 | RERANKER | _searched("retriever_2/retriever")),
            GraphStep("reranked_run", "rerank", CORPUS | {"candidates": "retriever_2_run/run"} | RERANKER),
            *_train("distilled", "mine_2", PRETRAINED["encoder"], "teacher"),
        ),
    }
)
"""The papers' run: pre-training, retrievers 1 and 2, the cross-encoder, and the retriever distilled from it."""

LABELLED = _graph(
    {
        "corpus": (FETCH, INGEST, CHECKED, LEXICAL),
        "retriever_1": (
            *dense("zero_shot", START),
            *_base_with_bm25(),
            _mine("mine_1", START, "zero_shot"),
            *_train("retriever_1", "mine_1", START),
        ),
        "retriever_2": (
            _mine("mine_2", "retriever_1/retriever"),
            *_train("retriever_2", "mine_2", "retriever_1/retriever"),
            *_projected(),
        ),
        "distillation": (
            _fused_teacher(),
            *_train("distilled", "mine_2", "retriever_2/retriever", "teacher"),
            *_averaged(START),
        ),
    }
)
"""For a base model that is already a retriever, and at least a few hundred questions."""

UNLABELLED = _graph(
    {
        "corpus": (FETCH, INGEST, CHECKED, LEXICAL),
        "distillation": (
            *dense("zero_shot", START),
            *_base_with_bm25(),
            _mine("mine_2", START, "zero_shot"),
            *_train("distilled", "mine_2", START),
            *_averaged(START),
        ),
    },
    apart="distilled",
)
"""For a corpus without questions: it trains on pairs that are made from the passages. Such pairs cannot show whether
training went too far, so only its average with the base model competes (benchmarks/no_labels.md)."""

LANGUAGE_MODEL = _graph(
    {
        "corpus": (FETCH, INGEST, CHECKED, TOKENS, LEXICAL),
        PRETRAINING: (LM_HEAD, GraphStep(PRETRAINING, "pretrain", TOKENIZED | WITH_HEAD)),
        "retriever_1": (*dense("zero_shot", START), *_train("retriever_1", "bm25", PRETRAINED["encoder"])),
        "retriever_2": (
            _mine("mine_1", "retriever_1/retriever"),
            *_train("retriever_2", "mine_1", "retriever_1/retriever"),
        ),
        "distillation": (
            _mine("mine_2", "retriever_2/retriever"),
            _fused_teacher(),
            *_train("distilled", "mine_2", "retriever_2/retriever", "teacher"),
            *_averaged("retriever_1/retriever"),
        ),
    }
)
"""For a base model that is not a retriever yet: it is pre-trained first."""

GRAPHS: Mapping[str, Mapping[str, tuple[GraphStep, ...]]] = {
    "simlm": SIMLM,
    "labelled": LABELLED,
    "unlabelled": UNLABELLED,
    "language-model": LANGUAGE_MODEL,
    PRETRAINING: {
        "corpus": tuple(step for step in SIMLM["corpus"] if step.name not in ("fetch_reranker", "bm25")),
        PRETRAINING: SIMLM[PRETRAINING],
    },
}
"""By the name that recipes give; a recipe without one has the first."""

SIMLM_STEPS = staged(SIMLM)
"""The steps of the papers' run."""


def graph_of(recipe: Mapping[str, Any], where: str = "recipe") -> tuple[GraphStep, ...]:
    """The steps of a recipe's run, each with its stage, inputs first: its graph, changed by its section `stages`.

    Raises `InputError` for a graph, step, input or output that does not exist, and for steps that form a cycle; `where`
    names the recipe in messages.

    >>> [step.name for step in graph_of({"graph": "unlabelled"})][:3]
    ['fetch_model', 'ingest', 'validate']
    """
    name = recipe.get(GRAPH) or next(iter(GRAPHS))
    refuse_unknown(name, GRAPHS, f"{where}: there is no {GRAPH}")
    steps = changed(staged(GRAPHS[name]), recipe.get(STAGES), where, frozenset(recipe))
    return tuple(_with_tokenizer(step, recipe.get(step.section)) for step in steps)


def _with_tokenizer(step: GraphStep, settings: Any) -> GraphStep:
    """An `ingest` that splits passages counts the base model's tokens. Any other corpus does not depend on it."""
    if isinstance(settings, Mapping) and settings.get("split_tokens"):
        return replace(step, inputs={"tokenizer": START} | dict(step.inputs))
    return step


def known_steps(recipe: Mapping[str, Any], where: str = "recipe") -> dict[str, GraphStep]:
    """Every step that a recipe may have a section for."""
    return {step.name: step for step in graph_of(recipe, where)}
