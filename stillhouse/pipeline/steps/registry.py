"""All steps, by name. A new step is a module beside this one and a row here."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from stillhouse.core.config import refuse_unknown
from stillhouse.pipeline.steps.spec import Step

MODULES = (
    "fetch_model",
    "ingest",
    "validate",
    "tokenize",
    "count",
    "importance",
    "pretrain",
    "bm25",
    "train_generator",
    "generate_queries",
    "read_negatives",
    "train_retriever",
    "train_query_encoder",
    "train_projection",
    "average",
    "encode",
    "index",
    "hybrid",
    "label_queries",
    "mine",
    "train_reranker",
    "score_shard",
    "score_pairs",
    "retrieve",
    "rerank",
    "select_best",
    "evaluate",
    "compare_release",
)


@cache
def steps() -> dict[str, Step]:
    """Every step by its command-line name, in the order of a whole run."""
    found = [import_module(f"stillhouse.pipeline.steps.{module}").STEP for module in MODULES]
    return {step.name: step for step in found}


def find_step(name: str) -> Step:
    refuse_unknown(name, steps(), "there is no step")
    return steps()[name]
