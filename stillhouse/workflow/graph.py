"""The whole run as data: every use of a step and where its inputs come from.

`dvc.yaml` and the Kubeflow pipeline are both made from this table, so they cannot drift apart. The name of a use is its
section in `params.yaml`, its DVC stage and its Kubeflow task; its outputs lie in `artifacts/<use>/<output>`. A recipe
may leave uses out, change their inputs and add others (`graph_of`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from stillhouse.workflow.stages import STAGES, changed
from stillhouse.workflow.uses import ARTIFACTS, Use, dense, needed

__all__ = [
    "APART",
    "ARTIFACTS",
    "CORPUS",
    "GATE",
    "PRETRAINED",
    "PRETRAINING",
    "STAGES",
    "START",
    "USES",
    "Use",
    "find_uses",
    "graph_of",
    "known_uses",
    "needed",
]

CORPUS = {"corpus": "ingest/corpus"}
GATE = {"validation": "validate/validation"}


def _mine(name: str, system: str) -> Use:
    inputs = {"retriever": f"{system}/retriever", "index": f"{system}_index/index"}
    return Use(name, "mine", CORPUS | inputs | {"others": "bm25/negatives"})


def _best(systems: Mapping[str, str]) -> tuple[Use, Use]:
    """The choice among retrievers, by the names of their systems, and the run of the winner."""
    candidates = {f"candidates/{system}": retriever for system, retriever in systems.items()}
    indexes = {f"indexes/{system}": f"{system}_index/index" for system in systems}
    found = {port: f"best/{port}" for port in ("retriever", "index", "hybrid")}
    return (
        Use("best", "select-best", CORPUS | {"bm25": "bm25/bm25"} | candidates | indexes),
        Use("best_run", "retrieve", CORPUS | found),
    )


def _evaluate(runs: Mapping[str, str], trainings: Iterable[str]) -> Use:
    """The evaluation of runs, by system name, with the loss curves of trainings."""
    curves = {f"curves/{training}": f"{training}/curves" for training in trainings}
    return Use("evaluate", "evaluate", CORPUS | {f"run/{system}": run for system, run in runs.items()} | curves)


BM25 = CORPUS | {"negatives": "bm25/negatives"}
PRETRAINING = "pretraining"
PRETRAINED = {"encoder": f"{PRETRAINING}/encoder"}
START = "fetch_model/encoder"

USES: tuple[Use, ...] = (
    Use("fetch_model", "fetch-model"),
    Use("fetch_generator", "fetch-model"),
    Use("fetch_reranker", "fetch-model"),
    Use("ingest", "ingest"),
    Use("validate", "validate", CORPUS),
    Use("tokenize", "tokenize", CORPUS | GATE | {"tokenizer": START}),
    Use("importance", "importance", {"tokens": "tokenize/tokens", "tokenizer": START}),
    Use("lm_head", "pretrain", {"tokens": "tokenize/tokens", "init": START}, stands_in={"encoder": START}),
    Use(
        PRETRAINING,
        "pretrain",
        {
            "tokens": "tokenize/tokens",
            "importance": "importance/importance",
            "init": "lm_head/encoder",
            "generator": "fetch_generator/encoder",
        },
        stands_in={"encoder": START},
    ),
    Use("bm25", "bm25", CORPUS | GATE),
    *dense("zero_shot", START),
    Use("retriever_1_unpretrained", "train-retriever", BM25 | {"encoder": START}),
    *dense("retriever_1_unpretrained", "retriever_1_unpretrained/retriever"),
    Use("retriever_1", "train-retriever", BM25 | PRETRAINED),
    *dense("retriever_1", "retriever_1/retriever"),
    _mine("mine_1", "retriever_1"),
    Use("retriever_2", "train-retriever", CORPUS | PRETRAINED | {"negatives": "mine_1/negatives"}),
    *dense("retriever_2", "retriever_2/retriever"),
    _mine("mine_2", "retriever_2"),
    Use(
        "reranker",
        "train-reranker",
        CORPUS | {"negatives": "mine_2/negatives", "init": "fetch_reranker/encoder", "encoder": START},
    ),
    Use(
        "teacher",
        "score-pairs",
        CORPUS
        | {
            "negatives": "mine_2/negatives",
            "reranker": "reranker/reranker",
            "retriever": "retriever_2/retriever",
            "index": "retriever_2_index/index",
        },
        needs=("reranker",),
    ),
    Use(
        "distilled",
        "train-retriever",
        CORPUS | PRETRAINED | {"negatives": "mine_2/negatives", "teacher": "teacher/teacher"},
    ),
    *dense("distilled", "distilled/retriever"),
    Use(
        "reranked_run",
        "rerank",
        CORPUS | {"candidates": "retriever_2_run/run", "reranker": "reranker/reranker"},
    ),
    *_best(
        {
            "zero_shot": START,
            "retriever_1_unpretrained": "retriever_1_unpretrained/retriever",
            "retriever_1": "retriever_1/retriever",
            "retriever_2": "retriever_2/retriever",
            "distilled": "distilled/retriever",
        }
    ),
    _evaluate(
        {
            "bm25": "bm25/run",
            "zero_shot": "zero_shot_run/run",
            "retriever_1_unpretrained": "retriever_1_unpretrained_run/run",
            "retriever_1": "retriever_1_run/run",
            "retriever_2": "retriever_2_run/run",
            "reranked": "reranked_run/run",
            "distilled": "distilled_run/run",
            "best": "best_run/run",
        },
        (
            "lm_head",
            "pretraining",
            "retriever_1_unpretrained",
            "retriever_1",
            "retriever_2",
            "reranker",
            "distilled",
        ),
    ),
)

REFRESHED: tuple[Use, ...] = (
    Use(
        "query_tower",
        "train-query-encoder",
        CORPUS | {"encoder": "champion/retriever", "old_index": "champion_index/index"},
    ),
)
"""Uses that only a refresh has (`releases/refresh/graph.py`), for which a recipe may hold settings."""

APART: tuple[Use, ...] = (
    Use("generated", "generate-queries", CORPUS | {"bm25": "bm25/bm25"}),
    Use("count", "count", {"tokens": "tokenize/tokens"}),
    Use("read_negatives", "read-negatives", CORPUS | GATE),
    *REFRESHED,
    Use(
        "adopt_index",
        "adopt-index",
        CORPUS
        | {
            "retriever": "distilled/retriever",
            "old_index": "retriever_2_index/index",
            "old_retriever": "retriever_2/retriever",
        },
    ),
    Use("average", "average", BM25 | {"start": PRETRAINED["encoder"], "trained": "retriever_1/retriever"}),
    Use(
        "score_shard",
        "score-shard",
        CORPUS | {"negatives": "mine_2/negatives", "reranker": "reranker/reranker"},
    ),
    Use("encode", "encode", CORPUS | GATE | {"retriever": "distilled/retriever"}),
    Use(
        "hybrid",
        "hybrid",
        CORPUS | {"retriever": "distilled/retriever", "index": "distilled_index/index", "bm25": "bm25/bm25"},
    ),
    Use(
        "compare_release",
        "compare-release",
        CORPUS | {"champion": "champion_run/run", "challenger": "distilled_run/run"},
    ),
)
"""Uses of steps that a whole run does not need: examples for the command line."""


def find_uses() -> dict[str, Use]:
    return {use.name: use for use in USES}


def graph_of(recipe: Mapping[str, Any], where: str = "recipe") -> tuple[Use, ...]:
    """The uses of a recipe's run, inputs first: the papers' run, changed by the recipe's section `stages`.

    Raises `InputError` for a stage, step, input or output that does not exist, and for stages that form a cycle;
    `where` names the recipe in messages.
    """
    return changed(USES, recipe.get(STAGES), where, frozenset(recipe))


def known_uses(recipe: Mapping[str, Any], where: str = "recipe") -> dict[str, Use]:
    """Every use that a recipe may have a section for: the papers' run, whether left out or not, the recipe's own uses,
    and those of a refresh."""
    return find_uses() | {use.name: use for use in (*REFRESHED, *graph_of(recipe, where))}
